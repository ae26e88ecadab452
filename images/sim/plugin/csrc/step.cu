// Where the real plugin has its kernels. Must stay as it is, byte for byte.
#include "mega.cuh"
__global__ void step(float* x, int n) {
  for (int i = blockIdx.x * kThreadsPerBlock + threadIdx.x; i < n; i += gridDim.x * kThreadsPerBlock) x[i] *= 2.0f;
}
