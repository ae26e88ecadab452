/* Simulated libcuda.so.1: the count, names, memory and attributes that say what a GPU is. Its work is in cuda_work.c. */
#define _POSIX_C_SOURCE 200809L
#include "cuda.h"

#include <stdio.h>

static int ready;

static int number(int gpu, const char *key, int *out)
{
    long long value;
    if (sim_number(gpu, key, &value) != SIM_OK)
        return CUDA_INVALID_VALUE;
    *out = (int)value;
    return CUDA_OK;
}

static int count(void)
{
    int value = 0;
    return number(-1, "count", &value) == CUDA_OK ? value : 0;
}

int sim_cuda_ready(void) { return ready; }
int sim_cuda_count(void) { return count(); }

int cuInit(unsigned flags)
{
    int i, code = 0, state;

    sim_enter(__func__);
    if (flags != 0)
        return CUDA_INVALID_VALUE;
    if (number(-1, "init_error", &code) == CUDA_OK && code == 18)
        return CUDA_DRIVER_MISMATCH;
    if (count() == 0)
        return CUDA_NO_DEVICE;
    /* As on NVSwitch machines: CUDA does not start before the fabric is up, whatever nvidia-smi shows. */
    for (i = 0; i < count(); i++)
        if (number(i, "fabric_state", &state) == CUDA_OK && (state == 1 || state == 2))
            return CUDA_SYSTEM_NOT_READY;
    ready = 1;
    return CUDA_OK;
}

int cuDriverGetVersion(int *out)
{
    sim_enter(__func__);
    return number(-1, "cuda", out);
}

int cuDeviceGetCount(int *out)
{
    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    *out = count();
    return CUDA_OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= count())
        return CUDA_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_OK;
}

int cuDeviceGetName(char *out, int size, int device)
{
    char text[256];
    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    if (sim_text(device, "name", text, sizeof text) != SIM_OK)
        return CUDA_INVALID_DEVICE;
    snprintf(out, (size_t)size, "%s", text);
    return CUDA_OK;
}

int cuDeviceTotalMem_v2(size_t *out, int device)
{
    long long mib;
    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    if (sim_number(device, "memory_mib", &mib) != SIM_OK)
        return CUDA_INVALID_DEVICE;
    *out = (size_t)mib << 20;
    return CUDA_OK;
}

int cuDeviceGetPCIBusId(char *out, int size, int device)
{
    char text[64];
    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    if (sim_text(device, "bus_id", text, sizeof text) != SIM_OK)
        return CUDA_INVALID_DEVICE;
    /* NVML writes an eight-digit domain, CUDA a four-digit one. */
    snprintf(out, (size_t)size, "%s", text[8] == ':' ? text + 4 : text);
    return CUDA_OK;
}

/* 16 multiprocessors, 75 and 76 compute capability, 13 clock (kHz), 33 to 50 PCI address. */
int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    int code, bus, slot, domain;
    char text[64];

    sim_enter(__func__);
    if (!ready)
        return CUDA_NOT_INITIALIZED;
    if (device < 0 || device >= count())
        return CUDA_INVALID_DEVICE;
    switch (attribute) {
    case 16: return number(device, "sms", out);
    case 75: return number(device, "cc_major", out);
    case 76: return number(device, "cc_minor", out);
    case 13:
        code = number(device, "clock_sm_max_mhz", out);
        *out *= 1000;
        return code;
    case 33: case 34: case 50:
        if (sim_text(device, "bus_id", text, sizeof text) != SIM_OK ||
            sscanf(text, "%x:%x:%x", (unsigned *)&domain, (unsigned *)&bus, (unsigned *)&slot) != 3)
            return CUDA_INVALID_VALUE;
        *out = attribute == 33 ? bus : attribute == 34 ? slot : domain;
        return CUDA_OK;
    default: return CUDA_INVALID_VALUE;
    }
}

int cuGetErrorString(int code, const char **out)
{
    switch (code) {
    case CUDA_OK: *out = "no error"; break;
    case CUDA_NOT_INITIALIZED: *out = "initialization error"; break;
    case CUDA_NO_DEVICE: *out = "no CUDA-capable device is detected"; break;
    case CUDA_INVALID_DEVICE: *out = "invalid device ordinal"; break;
    case CUDA_SYSTEM_NOT_READY: *out = "system not yet initialized"; break;
    case CUDA_DRIVER_MISMATCH: *out = "system has unsupported display driver / cuda driver combination"; break;
    default: *out = "invalid argument"; break;
    }
    return CUDA_OK;
}
