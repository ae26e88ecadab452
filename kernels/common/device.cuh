// Device helpers that every kernel of this folder shares. No state, no operator knowledge.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace b300k {

// --- programmatic dependent launch: no-ops when the launch did not ask for it -----------------------------------------
// After pdl_wait everything that the previous kernel of the stream wrote is visible. Only weights, which no kernel of a
// step writes, may be read before it, and nothing may be written before it.
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void pdl_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// --- bf16 pairs in a 32-bit word --------------------------------------------------------------------------------------
__device__ __forceinline__ float bf_lo(uint32_t word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float bf_hi(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }
__device__ __forceinline__ uint32_t bf_pack(float lo, float hi) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ __forceinline__ void unpack8(const uint4& v, float (&f)[8]) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    f[2 * i] = bf_lo(w[i]);
    f[2 * i + 1] = bf_hi(w[i]);
  }
}

// Weights are read once a step: keep them out of L1 and let L2 drop them first.
__device__ __forceinline__ uint4 load_weight(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// Activations were written by the kernel before: never through the non-coherent path, which PDL could make stale.
__device__ __forceinline__ uint4 load_act(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_act2(const void* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) v += __shfl_xor_sync(0xffffffffu, v, mask);
  return v;
}

// --- E4M3 with one UE8M0 scale per group ------------------------------------------------------------------------------
struct Ue8m0 {
  uint32_t byte;  // biased exponent; 255 (UE8M0's NaN) when the group holds a NaN or an infinity
  float inverse;  // what a value is multiplied with before it is rounded to E4M3
};
// Smallest power of two at or above amax/448, the quotient as one fp32 product; a zero group has scale byte 0 and codes 0.
// Subnormal quotients up to 2^-127 take byte 0, whose value is 2^-127.
__device__ __forceinline__ Ue8m0 ue8m0_of(float amax, bool finite) {
  if (!finite) return {255u, __uint_as_float(0x7fc00000u)};
  const float quotient = amax * (1.0f / 448.0f);
  const uint32_t bits = __float_as_uint(quotient), exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  const bool up = mantissa != 0u && !(exponent == 0u && mantissa <= 0x400000u);
  const uint32_t byte = min(exponent + (up ? 1u : 0u), 254u);
  return {byte, byte == 0u ? 0.0f : __uint_as_float((254u - byte) << 23)};
}
__device__ __forceinline__ uint32_t e4m3x2(float lo, float hi) {
  return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
}
// Where scale `group` of `row` lies: row-major [rows][groups], or the 128x4 tiles that block-scaled MMA reads.
__device__ __forceinline__ int64_t scale_offset(int layout, int row, int group, int groups) {
  if (layout == 0) return int64_t(row) * groups + group;
  return int64_t(row / 128) * ((groups + 3) / 4) * 512 + (group / 4) * 512 + (row % 32) * 16 + (row / 32 % 4) * 4 + group % 4;
}

// --- last block of a tile ---------------------------------------------------------------------------------------------
// Every item of a tile calls this once, by all threads of its block, after its global stores. True in the one block that
// came last; that block then sees the stores of all the others. The counter is back at 0 when the tile is done, so that a
// graph replay needs no memset. Nobody waits for anybody: no residency requirement, no hang.
// One release-acquire atomic: two fences around a relaxed one took 0.1 us more (2026-11-29, H200: K4 6.58 against 6.46 us, K2
// 5.11 against 5.00, T=1).
__device__ __forceinline__ bool arrive_last(uint32_t* counter, uint32_t arrivals) {
  __shared__ uint32_t ticket;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(counter), "r"(arrivals - 1) : "memory");
    ticket = old;
  }
  __syncthreads();
  const bool last = ticket == arrivals - 1;
  __syncthreads();
  return last;
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_tf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// --- launching --------------------------------------------------------------------------------------------------------
template <typename... Params, typename... Args>
inline int launch(void (*kernel)(Params...), int blocks, int threads, int cluster, int pdl, void* stream, int shared_bytes, Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = size_t(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attributes[2];
  int count = 0;
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {unsigned(cluster), 1, 1};
    ++count;
  }
  if (pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  config.attrs = attributes;
  config.numAttrs = count;
  return int(cudaLaunchKernelEx(&config, kernel, Params(args)...));
}
inline bool aligned16(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15u) == 0; }

}  // namespace b300k
