/* Simulated libnvidia-ml.so.1: start, handles, identity, and what a device is asked. Writes are in nvml_write.c. */
#define _POSIX_C_SOURCE 200809L
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int users;
static struct sim_device devices[SIM_MAX_GPUS];

int sim_begin(const char *function)
{
    sim_enter(function);
    return users > 0 ? SIM_OK : SIM_UNINITIALIZED;
}

int sim_unsigned(int gpu, const char *key, unsigned *out)
{
    long long value;
    int code = sim_number(gpu, key, &value);
    if (code == SIM_OK)
        *out = (unsigned)value;
    return code;
}

static int count(void)
{
    long long value = 0;
    return sim_number(-1, "count", &value) == SIM_OK && value <= SIM_MAX_GPUS ? (int)value : 0;
}

int nvmlInitWithFlags(unsigned flags)
{
    long long code;
    int i;

    (void)flags;
    sim_enter(__func__);
    if (sim_number(-1, "init_error", &code) == SIM_OK && code != 0)
        return (int)code;
    for (i = 0; i < SIM_MAX_GPUS; i++)
        devices[i].index = i;
    users++;
    return SIM_OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    int i;
    long long persistent;

    BEGIN;
    if (--users > 0)
        return SIM_OK;
    /* Without persistence the driver unloads a GPU's state when its last user leaves. */
    for (i = 0; i < count(); i++)
        if (sim_number(i, "persistence", &persistent) == SIM_OK && !persistent) {
            const char *lost[] = {"power_limit_mw", "locked_min_mhz", "locked_max_mhz"};
            unsigned k;
            for (k = 0; k < sizeof lost / sizeof *lost; k++) {
                long long changed, initial;
                int now = sim_number(i, lost[k], &changed), before = sim_number_at_boot(i, lost[k], &initial);
                if (now != before || (now == SIM_OK && changed != initial))
                    sim_change(i, lost[k], NULL, "last-user-left");
            }
        }
    return SIM_OK;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 15: return "GPU is lost";
    case 17: return "Operating System call failed";
    case 18: return "Driver/library version mismatch";
    case 25: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

static int system_text(const char *key, char *out, unsigned size)
{
    char text[SIM_TEXT];
    int code = sim_text(-1, key, text, sizeof text);
    if (code != SIM_OK)
        return code;
    if (strlen(text) + 1 > size)
        return SIM_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SIM_OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN; return system_text("driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { BEGIN; return system_text("nvml", out, size); }

int nvmlSystemGetCudaDriverVersion_v2(int *out) { BEGIN; return sim_unsigned(-1, "cuda", (unsigned *)out); }
int nvmlSystemGetCudaDriverVersion(int *out) { BEGIN; return sim_unsigned(-1, "cuda", (unsigned *)out); }

int nvmlDeviceGetCount_v2(unsigned *out)
{
    BEGIN;
    *out = (unsigned)count();
    return SIM_OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out)
{
    BEGIN;
    if (index >= (unsigned)count())
        return SIM_INVALID_ARGUMENT;
    *out = &devices[index];
    return SIM_OK;
}

static int by_text(const char *key, const char *wanted, device_t *out)
{
    char text[SIM_TEXT];
    int i;
    for (i = 0; i < count(); i++)
        if (sim_text(i, key, text, sizeof text) == SIM_OK && strcasecmp(text, wanted) == 0) {
            *out = &devices[i];
            return SIM_OK;
        }
    return SIM_NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *out) { BEGIN; return by_text("uuid", uuid, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device_t *out) { BEGIN; return by_text("bus_id", id, out); }

static int device_text(device_t device, const char *key, char *out, unsigned size)
{
    char text[SIM_TEXT];
    int code = sim_text(device->index, key, text, sizeof text);
    if (code != SIM_OK)
        return code;
    if (strlen(text) + 1 > size)
        return SIM_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SIM_OK;
}

int nvmlDeviceGetName(device_t d, char *out, unsigned size) { BEGIN; return device_text(d, "name", out, size); }
int nvmlDeviceGetUUID(device_t d, char *out, unsigned size) { BEGIN; return device_text(d, "uuid", out, size); }
int nvmlDeviceGetSerial(device_t d, char *out, unsigned size) { BEGIN; return device_text(d, "serial", out, size); }
int nvmlDeviceGetVbiosVersion(device_t d, char *out, unsigned size) { BEGIN; return device_text(d, "vbios", out, size); }
int nvmlDeviceGetInforomImageVersion(device_t d, char *out, unsigned size)
{
    BEGIN;
    return device_text(d, "inforom", out, size);
}

int nvmlDeviceGetIndex(device_t d, unsigned *out) { BEGIN; *out = (unsigned)d->index; return SIM_OK; }
int nvmlDeviceGetMinorNumber(device_t d, unsigned *out) { BEGIN; *out = (unsigned)d->index; return SIM_OK; }

int nvmlDeviceGetPciInfo_v3(device_t d, pci_info_t *out)
{
    unsigned function;
    int code;

    BEGIN;
    memset(out, 0, sizeof *out);
    code = sim_text(d->index, "bus_id", out->bus_id, sizeof out->bus_id);
    if (code != SIM_OK)
        return code;
    if (sscanf(out->bus_id, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function) != 4)
        return SIM_UNKNOWN;
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.%X", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0xff, function & 0xf);
    sim_unsigned(d->index, "pci_device_id", &out->pci_device_id);
    sim_unsigned(d->index, "pci_subsystem_id", &out->pci_subsystem_id);
    return SIM_OK;
}

static int memory(device_t d, unsigned long long *total, unsigned long long *reserved)
{
    long long mib, held = 0;
    int code = sim_number(d->index, "memory_mib", &mib);
    if (code != SIM_OK)
        return code;
    sim_number(d->index, "memory_reserved_mib", &held);
    *total = (unsigned long long)mib << 20;
    *reserved = (unsigned long long)held << 20;
    return SIM_OK;
}

int nvmlDeviceGetMemoryInfo(device_t d, memory_t *out)
{
    unsigned long long total, reserved;
    int code;
    BEGIN;
    code = memory(d, &total, &reserved);
    if (code == SIM_OK) {
        out->total = total;
        out->used = reserved;
        out->free = total - reserved;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(device_t d, memory_v2_t *out)
{
    int code;
    BEGIN;
    if (out->version != 0x02000028)
        return SIM_VERSION_MISMATCH;
    code = memory(d, &out->total, &out->reserved);
    if (code == SIM_OK) {
        out->used = 0;
        out->free = out->total - out->reserved;
    }
    return code;
}

int nvmlDeviceGetNumGpuCores(device_t d, unsigned *out) { BEGIN; return sim_unsigned(d->index, "cores", out); }

int nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor)
{
    int code;
    BEGIN;
    code = sim_unsigned(d->index, "cc_major", (unsigned *)major);
    return code == SIM_OK ? sim_unsigned(d->index, "cc_minor", (unsigned *)minor) : code;
}

int nvmlDeviceGetCpuAffinity(device_t d, unsigned words, unsigned long *out)
{
    char text[SIM_TEXT], *at = text;
    int code;

    BEGIN;
    code = sim_text(d->index, "cpus", text, sizeof text);
    if (code != SIM_OK)
        return code;
    memset(out, 0, words * sizeof *out);
    while (*at) {
        unsigned long first = strtoul(at, &at, 10), last = first;
        if (*at == '-')
            last = strtoul(at + 1, &at, 10);
        for (; first <= last; first++)
            if (first / 64 < words)
                out[first / 64] |= 1ul << (first % 64);
        if (*at != ',')
            break;
        at++;
    }
    return SIM_OK;
}

int nvmlDeviceGetCpuAffinityWithinScope(device_t d, unsigned words, unsigned long *out, int scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(d, words, out);
}

int nvmlDeviceGetNumaNodeId(device_t d, int *out) { BEGIN; return sim_unsigned(d->index, "numa_node_id", (unsigned *)out); }
