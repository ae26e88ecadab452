// The plainest sink of common/stream.cuh: the sums as bf16 into y [T,n].
#pragma once
#include "../common/stream.cuh"

namespace b300k {
struct Write {
  char* y;
  int rows, n;
  __device__ void prepare(int) {}
  __device__ void change(int, int, uint32_t (&)[4]) {}
  __device__ void unit(int, int row, int lane, float4 sum) {
    const int token = lane >> 2;
    if (token < rows)
      *reinterpret_cast<uint2*>(y + (int64_t(token) * n + row + (lane & 3) * 4) * 2) = make_uint2(bf_pack(sum.x, sum.y), bf_pack(sum.z, sum.w));
  }
};
}  // namespace b300k
