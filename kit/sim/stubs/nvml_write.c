/* Simulated libnvidia-ml.so.1: what changes a GPU. Root only, within the GPU's limits, logged. */
#define _POSIX_C_SOURCE 200809L
#include "nvml.h"

#include <stdio.h>
#include <unistd.h>

int nvmlDeviceSetPersistenceMode(device_t d, int mode)
{
    BEGIN;
    if (mode != 0 && mode != 1)
        return SIM_INVALID_ARGUMENT;
    return sim_change(d->index, "persistence", mode ? "1" : "0", __func__);
}

int nvmlDeviceSetPowerManagementLimit(device_t d, unsigned milliwatts)
{
    char text[32];
    unsigned least, most;
    int code;

    BEGIN;
    code = sim_unsigned(d->index, "power_limit_min_mw", &least);
    if (code == SIM_OK)
        code = sim_unsigned(d->index, "power_limit_max_mw", &most);
    if (code != SIM_OK)
        return code;
    if (geteuid() != 0)
        return SIM_NO_PERMISSION;
    if (milliwatts < least || milliwatts > most)
        return SIM_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u", milliwatts);
    return sim_change(d->index, "power_limit_mw", text, __func__);
}

int nvmlDeviceSetGpuLockedClocks(device_t d, unsigned least, unsigned most)
{
    char text[32];
    unsigned limit;
    int code;

    BEGIN;
    code = sim_unsigned(d->index, "clock_sm_max_mhz", &limit);
    if (code != SIM_OK)
        return code;
    if (geteuid() != 0)
        return SIM_NO_PERMISSION;
    if (least > most || most > limit || most < 120)
        return SIM_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u", least);
    code = sim_change(d->index, "locked_min_mhz", text, __func__);
    if (code != SIM_OK)
        return code;
    snprintf(text, sizeof text, "%u", most);
    return sim_change(d->index, "locked_max_mhz", text, __func__);
}

int nvmlDeviceResetGpuLockedClocks(device_t d)
{
    int code;
    BEGIN;
    code = sim_change(d->index, "locked_min_mhz", NULL, __func__);
    return code == SIM_OK ? sim_change(d->index, "locked_max_mhz", NULL, __func__) : code;
}
