/* Simulated libnvidia-ml.so.1: clocks, power, health, links. */
#define _POSIX_C_SOURCE 200809L
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNSIGNED(function, key)                                                                                        \
    int function(device_t d, unsigned *out)                                                                            \
    {                                                                                                                  \
        BEGIN;                                                                                                         \
        return sim_unsigned(d->index, key, out);                                                                       \
    }

UNSIGNED(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
UNSIGNED(nvmlDeviceGetPowerUsage, "power_draw_mw")
UNSIGNED(nvmlDeviceGetPersistenceMode, "persistence")
UNSIGNED(nvmlDeviceGetComputeMode, "compute_mode")
UNSIGNED(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UNSIGNED(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UNSIGNED(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
UNSIGNED(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UNSIGNED(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_max")
UNSIGNED(nvmlDeviceGetPerformanceState, "performance_state")

static int pair(int gpu, const char *first, const char *second, unsigned *a, unsigned *b)
{
    int code = sim_unsigned(gpu, first, a);
    return code == SIM_OK ? sim_unsigned(gpu, second, b) : code;
}

int nvmlDeviceGetPowerManagementLimitConstraints(device_t d, unsigned *least, unsigned *most)
{
    BEGIN;
    return pair(d->index, "power_limit_min_mw", "power_limit_max_mw", least, most);
}

int nvmlDeviceGetMigMode(device_t d, unsigned *current, unsigned *pending)
{
    BEGIN;
    return pair(d->index, "mig_current", "mig_pending", current, pending);
}

int nvmlDeviceGetEccMode(device_t d, unsigned *current, unsigned *pending)
{
    BEGIN;
    return pair(d->index, "ecc_current", "ecc_pending", current, pending);
}

static int power_limit(device_t d, unsigned *out)
{
    return sim_unsigned(d->index, "power_limit_mw", out);
}

int nvmlDeviceGetPowerManagementLimit(device_t d, unsigned *out) { BEGIN; return power_limit(d, out); }
int nvmlDeviceGetEnforcedPowerLimit(device_t d, unsigned *out) { BEGIN; return power_limit(d, out); }

/* Type 2 is memory; the others follow the SM clock. A locked idle GPU runs at its lock. */
int nvmlDeviceGetClockInfo(device_t d, int type, unsigned *out)
{
    BEGIN;
    if (type == 2)
        return sim_unsigned(d->index, "clock_memory_mhz", out);
    if (sim_unsigned(d->index, "locked_max_mhz", out) == SIM_OK)
        return SIM_OK;
    return sim_unsigned(d->index, "clock_sm_mhz", out);
}

int nvmlDeviceGetMaxClockInfo(device_t d, int type, unsigned *out)
{
    BEGIN;
    return sim_unsigned(d->index, type == 2 ? "clock_memory_max_mhz" : "clock_sm_max_mhz", out);
}

static int clock_reasons(device_t d, unsigned long long *out)
{
    long long value;
    int code = sim_number(d->index, "clock_reasons", &value);
    if (code == SIM_OK)
        *out = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t d, unsigned long long *out) { BEGIN; return clock_reasons(d, out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, unsigned long long *out) { BEGIN; return clock_reasons(d, out); }

int nvmlDeviceGetTemperature(device_t d, int sensor, unsigned *out)
{
    BEGIN;
    (void)sensor;
    return sim_unsigned(d->index, "temperature", out);
}

int nvmlDeviceGetTemperatureV(device_t d, temperature_t *out)
{
    BEGIN;
    if (out->version != 0x100000C)
        return SIM_VERSION_MISMATCH;
    return sim_unsigned(d->index, "temperature", (unsigned *)&out->temperature);
}

int nvmlDeviceGetTotalEccErrors(device_t d, int error, int counter, unsigned long long *out)
{
    long long value;
    int code;
    BEGIN;
    (void)counter;
    code = sim_number(d->index, error == 1 ? "ecc_uncorrected" : "ecc_corrected", &value);
    if (code == SIM_OK)
        *out = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetRemappedRows(device_t d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
    int code;
    BEGIN;
    code = pair(d->index, "remap_correctable", "remap_uncorrectable", correctable, uncorrectable);
    return code == SIM_OK ? pair(d->index, "remap_pending", "remap_failed", pending, failed) : code;
}

static const char *field_key(unsigned field)
{
    switch (field) {
    case 90: return "nvlink_mbps";
    case 91: return "nvlinks";
    case 142: return "remap_correctable";
    case 143: return "remap_uncorrectable";
    case 144: return "remap_pending";
    case 145: return "remap_failed";
    case 147: return "nvlinks";
    case 230: return "recovery_action";
    default: return NULL;
    }
}

int nvmlDeviceGetFieldValues(device_t d, int number, field_value_t *fields)
{
    int i;
    BEGIN;
    for (i = 0; i < number; i++) {
        const char *key = field_key(fields[i].field);
        fields[i].timestamp = (long long)time(NULL) * 1000000;
        fields[i].latency_us = 1;
        fields[i].value_type = 1;
        memset(&fields[i].value, 0, sizeof fields[i].value);
        fields[i].result = key ? sim_unsigned(d->index, key, &fields[i].value.ui) : SIM_NOT_SUPPORTED;
    }
    return SIM_OK;
}

static int fabric(device_t d, int *status, unsigned *clique, unsigned *state)
{
    int code = pair(d->index, "fabric_state", "fabric_status", state, (unsigned *)status);
    *clique = 0;
    return code;
}

int nvmlDeviceGetGpuFabricInfoV(device_t d, fabric_t *out)
{
    unsigned summary = 0;
    int code;

    BEGIN;
    if (out->version != 0x02000024 && out->version != 0x03000028)
        return SIM_VERSION_MISMATCH;
    memset(out->cluster, 0, sizeof out->cluster);
    code = fabric(d, &out->status, &out->clique, &out->state);
    if (code == SIM_OK)
        code = sim_unsigned(d->index, "fabric_health_mask", &out->health_mask);
    /* Version 2 ends before the summary: writing it would overrun the caller's memory. */
    if (code == SIM_OK && out->version == 0x03000028) {
        code = sim_unsigned(d->index, "fabric_health_summary", &summary);
        out->health_summary = (unsigned char)summary;
    }
    return code;
}

int nvmlDeviceGetNvLinkState(device_t d, unsigned link, unsigned *out)
{
    char key[32];
    unsigned links;
    int code;

    BEGIN;
    code = sim_unsigned(d->index, "nvlinks", &links);
    if (code != SIM_OK)
        return code;
    if (link >= links)
        return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink_%u", link);
    if (sim_unsigned(d->index, key, out) != SIM_OK)
        *out = 1;
    return SIM_OK;
}

int nvmlDeviceGetNvLinkVersion(device_t d, unsigned link, unsigned *out)
{
    BEGIN;
    (void)link;
    return sim_unsigned(d->index, "nvlink_version", out);
}

int nvmlDeviceGetP2PStatus(device_t a, device_t b, int index, int *out)
{
    char key[32];
    BEGIN;
    if (index < 0 || index > 4)
        return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "p2p_%d", b->index);
    if (sim_unsigned(a->index, key, (unsigned *)out) == SIM_OK)
        return SIM_OK;
    return sim_unsigned(a->index, "p2p", (unsigned *)out);
}

/* A GPU whose facts name no process has none. */
int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *count, process_t *out)
{
    unsigned pid = 0, room;

    BEGIN;
    room = *count;
    if (sim_unsigned(d->index, "compute_pid", &pid) != SIM_OK || pid == 0) {
        *count = 0;
        return SIM_OK;
    }
    *count = 1;
    if (room < 1)
        return SIM_INSUFFICIENT_SIZE;
    memset(out, 0, sizeof *out);
    out->pid = pid;
    return SIM_OK;
}
