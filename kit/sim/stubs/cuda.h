/* What the two halves of the CUDA stub share. */
#ifndef SIM_CUDA_H
#define SIM_CUDA_H

#include "hardware.h"

#include <stdint.h>

enum { CUDA_OK = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3, CUDA_NO_DEVICE = 100,
       CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201, CUDA_NO_PEER_ACCESS = 217, CUDA_NOT_FOUND = 500,
       CUDA_SYSTEM_NOT_READY = 802, CUDA_DRIVER_MISMATCH = 803 };

/* Whether cuInit succeeded, and how many devices there are. */
int sim_cuda_ready(void);
int sim_cuda_count(void);

#endif
