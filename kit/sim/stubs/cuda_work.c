/* Simulated libcuda.so.1 at work: contexts, memory, streams, events, copies, and the kernels of the burn-in.
 *
 * No data is moved. Each stream has a clock that every operation puts forward by bytes over the profile's bandwidth
 * (hbm_gbps, p2p_gbps), and events read that clock, so a program measures what the profile says. Memory is an address
 * in a device's own range; allocations below 1 MiB are real, so that results can be read back. A kernel named check
 * finds one wrong word a pass where its range covers the profile's hbm_fault_mib.
 */
#define _POSIX_C_SOURCE 200809L
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#define SMALL (1u << 20)
#define BASE(device) ((uint64_t)((device) + 1) << 44)
#define MAX_BLOCKS 65536

typedef struct context {
    int device;
    uint64_t next, used, room;
    long long hbm_gbps, p2p_gbps, fault_mib;
    int ready;
} context_t;
typedef struct stream {
    context_t *context;
    double now_s;
} stream_t;
typedef struct event {
    double at_s;
} event_t;
typedef struct kernel {
    int checks;
} kernel_t;
typedef struct block {
    uint64_t at, size;
    context_t *context;
} block_t;

static context_t contexts[SIM_MAX_GPUS];
static _Thread_local context_t *current;
static block_t blocks[MAX_BLOCKS];
static size_t block_count;
static char *module_text;

static double seconds(uint64_t bytes, long long gbps) { return gbps > 0 ? (double)bytes / ((double)gbps * 1e9) : 1e9; }

int cuDevicePrimaryCtxRetain(context_t **out, int device)
{
    context_t *context;
    long long mib, held = 0;

    sim_enter(__func__);
    if (!sim_cuda_ready())
        return CUDA_NOT_INITIALIZED;
    if (device < 0 || device >= sim_cuda_count())
        return CUDA_INVALID_DEVICE;
    context = &contexts[device];
    if (!context->ready) {
        if (sim_number(device, "memory_mib", &mib) != SIM_OK || sim_number(device, "hbm_gbps", &context->hbm_gbps) != SIM_OK ||
            sim_number(device, "p2p_gbps", &context->p2p_gbps) != SIM_OK)
            return CUDA_INVALID_VALUE;
        if (sim_number(device, "hbm_fault_mib", &context->fault_mib) != SIM_OK)
            context->fault_mib = -1;
        sim_number(device, "memory_reserved_mib", &held);
        context->device = device;
        context->room = (uint64_t)(mib - held) << 20;
        context->ready = 1;
    }
    *out = context;
    return CUDA_OK;
}

int cuCtxSetCurrent(context_t *context)
{
    current = context;
    return CUDA_OK;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    sim_enter(__func__);
    if (!current)
        return CUDA_INVALID_CONTEXT;
    *free_bytes = current->room - current->used;
    *total = current->room;
    return CUDA_OK;
}

int cuMemAlloc_v2(uint64_t *out, size_t size)
{
    if (!current)
        return CUDA_INVALID_CONTEXT;
    if (size == 0 || block_count == MAX_BLOCKS)
        return CUDA_INVALID_VALUE;
    if (current->used + size > current->room)
        return CUDA_OUT_OF_MEMORY;
    if (size < SMALL) {
        *out = (uint64_t)(uintptr_t)calloc(1, size);
        if (!*out)
            return CUDA_OUT_OF_MEMORY;
    } else {
        *out = BASE(current->device) + current->next;
        current->next += size;
    }
    current->used += size;
    blocks[block_count++] = (block_t){*out, size, current};
    return CUDA_OK;
}

/* The block that holds the whole range, or NULL. */
static block_t *block_of(uint64_t at, uint64_t size)
{
    size_t i;
    for (i = 0; i < block_count; i++)
        if (at >= blocks[i].at && at + size <= blocks[i].at + blocks[i].size)
            return &blocks[i];
    return NULL;
}

int cuMemFree_v2(uint64_t at)
{
    block_t *block = block_of(at, 1);
    if (!block || block->at != at)
        return CUDA_INVALID_VALUE;
    if (block->size < SMALL)
        free((void *)(uintptr_t)at);
    else if (at + block->size == BASE(block->context->device) + block->context->next)
        block->context->next -= block->size;
    block->context->used -= block->size;
    *block = blocks[--block_count];
    return CUDA_OK;
}

int cuStreamCreate(stream_t **out, unsigned flags)
{
    (void)flags;
    if (!current)
        return CUDA_INVALID_CONTEXT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return CUDA_OUT_OF_MEMORY;
    (*out)->context = current;
    return CUDA_OK;
}

int cuStreamSynchronize(stream_t *stream)
{
    sim_enter(__func__);
    return stream ? CUDA_OK : CUDA_INVALID_VALUE;
}

int cuEventCreate(event_t **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int cuEventRecord(event_t *event, stream_t *stream)
{
    if (!event || !stream)
        return CUDA_INVALID_VALUE;
    event->at_s = stream->now_s;
    return CUDA_OK;
}

int cuEventElapsedTime(float *milliseconds, event_t *from, event_t *to)
{
    if (!from || !to)
        return CUDA_INVALID_VALUE;
    *milliseconds = (float)((to->at_s - from->at_s) * 1e3);
    return CUDA_OK;
}

int cuMemsetD32Async(uint64_t at, unsigned word, size_t words, stream_t *stream)
{
    block_t *block = block_of(at, words * 4);
    size_t i;

    if (!block || !stream)
        return CUDA_INVALID_VALUE;
    if (block->size < SMALL)
        for (i = 0; i < words; i++)
            ((unsigned *)(uintptr_t)at)[i] = word;
    stream->now_s += seconds(words * 4, block->context->hbm_gbps);
    return CUDA_OK;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    block_t *block = block_of(from, size);
    if (!block || block->size >= SMALL)
        return CUDA_INVALID_VALUE;
    memcpy(to, (void *)(uintptr_t)from, size);
    return CUDA_OK;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, stream_t *stream)
{
    if (!block_of(to, size) || !block_of(from, size) || !stream)
        return CUDA_INVALID_VALUE;
    stream->now_s += seconds(2 * size, stream->context->hbm_gbps);
    return CUDA_OK;
}

int cuMemcpyPeerAsync(uint64_t to, context_t *into, uint64_t from, context_t *out, size_t size, stream_t *stream)
{
    if (!block_of(to, size) || !block_of(from, size) || !into || !out || !stream)
        return CUDA_INVALID_VALUE;
    stream->now_s += seconds(size, out->p2p_gbps);
    return CUDA_OK;
}

int cuDeviceCanAccessPeer(int *out, int device, int peer)
{
    long long status;
    sim_enter(__func__);
    if (device < 0 || peer < 0 || device >= sim_cuda_count() || peer >= sim_cuda_count())
        return CUDA_INVALID_DEVICE;
    *out = device != peer && sim_number(device, "p2p", &status) == SIM_OK && status == 0;
    return CUDA_OK;
}

int cuCtxEnablePeerAccess(context_t *peer, unsigned flags)
{
    int able = 0;
    if (!current || !peer || flags)
        return CUDA_INVALID_CONTEXT;
    if (cuDeviceCanAccessPeer(&able, current->device, peer->device) != CUDA_OK || !able)
        return CUDA_NO_PEER_ACCESS;
    return CUDA_OK;
}

int cuModuleLoadData(char **out, const char *image)
{
    sim_enter(__func__);
    if (!current || strncmp(image, ".version ", 9) != 0)
        return CUDA_INVALID_VALUE;
    if (!module_text)
        module_text = strdup(image);
    *out = module_text;
    return module_text ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int cuModuleGetFunction(kernel_t **out, const char *module, const char *name)
{
    static kernel_t fill, check = {1};
    if (!strstr(module, name))
        return CUDA_NOT_FOUND;
    *out = strcmp(name, "b300kit_check") == 0 ? &check : &fill;
    return CUDA_OK;
}

/* Arguments as the burn-in's kernels take them: address, first word, seed, mask, flip, result. 64 bytes a thread. */
int cuLaunchKernel(kernel_t *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, stream_t *stream, void **arguments, void **extra)
{
    uint64_t at, size = (uint64_t)gx * bx * 64, fault;
    context_t *context;

    (void)shared;
    if (!kernel || !stream || !arguments || extra || !gx || !bx || gy != 1 || gz != 1 || by != 1 || bz != 1)
        return CUDA_INVALID_VALUE;
    at = *(uint64_t *)arguments[0];
    context = stream->context;
    if (!block_of(at, size))
        return CUDA_INVALID_VALUE;
    stream->now_s += seconds(size, context->hbm_gbps);
    fault = BASE(context->device) + ((uint64_t)context->fault_mib << 20);
    if (kernel->checks && context->fault_mib >= 0 && fault >= at && fault < at + size) {
        uint64_t *result = (uint64_t *)(uintptr_t)*(uint64_t *)arguments[5];
        uint64_t word = *(uint64_t *)arguments[1] + (fault - at) / 8;
        result[0]++;
        if (word < result[1])
            result[1] = word;
    }
    return CUDA_OK;
}
