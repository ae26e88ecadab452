/* Simulated libnccl.so.2: an all-reduce that takes as long as the profile's nccl_gbps (bus bandwidth) says. */
#define _POSIX_C_SOURCE 200809L
#include "hardware.h"

#include <stdint.h>
#include <time.h>

enum { NCCL_OK = 0, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE = 5 };

static struct communicator {
    int ready;
} communicators[SIM_MAX_GPUS];
static int ranks, depth;
static long long slowest_gbps;
static double queued_s;

int ncclGetVersion(int *out)
{
    *out = 22803;
    return NCCL_OK;
}

const char *ncclGetErrorString(int code)
{
    switch (code) {
    case NCCL_OK: return "no error";
    case NCCL_SYSTEM_ERROR: return "unhandled system error";
    case NCCL_INVALID_ARGUMENT: return "invalid argument";
    default: return "invalid usage";
    }
}

int ncclCommInitAll(struct communicator **out, int count, const int *devices)
{
    long long value;
    int i;

    sim_enter(__func__);
    if (count < 1 || count > SIM_MAX_GPUS)
        return NCCL_INVALID_ARGUMENT;
    for (i = 0; i < count; i++) {
        if (sim_number(devices[i], "nccl_gbps", &value) != SIM_OK || value < 1)
            return NCCL_SYSTEM_ERROR;
        if (i == 0 || value < slowest_gbps)
            slowest_gbps = value;
        communicators[i].ready = 1;
        out[i] = &communicators[i];
    }
    ranks = count;
    return NCCL_OK;
}

int ncclCommDestroy(struct communicator *communicator)
{
    communicator->ready = 0;
    return NCCL_OK;
}

int ncclGroupStart(void)
{
    depth++;
    queued_s = 0;
    return NCCL_OK;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct communicator *communicator,
                  void *stream)
{
    double bytes = (double)count * 4;

    if (!from || !to || type != 7 || operation != 0 || !stream || !communicator->ready || !depth)
        return NCCL_INVALID_ARGUMENT;
    queued_s = 2.0 * (ranks - 1) / ranks * bytes / ((double)slowest_gbps * 1e9);
    return NCCL_OK;
}

int ncclGroupEnd(void)
{
    struct timespec wait;

    if (!depth)
        return NCCL_INVALID_USAGE;
    depth--;
    wait.tv_sec = (time_t)queued_s;
    wait.tv_nsec = (long)((queued_s - (double)wait.tv_sec) * 1e9);
    nanosleep(&wait, NULL);
    return NCCL_OK;
}
