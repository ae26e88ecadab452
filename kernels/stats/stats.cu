// K2, the stream statistics: three small sets of mixing coefficients from the flattened residual. One launch.
//
//   m     = (W vec(R)) * 1/sqrt(mean(vec(R)^2) + rms_eps)                         24 values a row, K = 20480
//   pre'  = sigmoid(s0*m[0:4]  + b[0:4]) + eps
//   post' = 2*sigmoid(s1*m[4:8] + b[4:8])
//   C'    = rowsoftmax(s2*m[8:24] + b[8:24]) + eps, columns / (sum + eps), then 19 x (rows, columns) / (sum + eps)
//
// in   R [T,4,5120] bf16 ; W [24,20480] fp32 ; scale [3], base [24] fp32 ; out pre [T,4], post [T,4], comb [T,4,4] fp32
// Bytes at T=8: W 1.97 MB (cold) + R 0.33 MB (in L2) = 2.3 MB: 0.53 us at 4.3 TB/s, then a serial Sinkhorn.
//
// How: 40 slices of K x 3 groups of 8 outputs = 120 items of 16 KB of W per 8-row tile. The dot products run on the tensor
// cores in tf32: bf16 R is exact in tf32, fp32 W is split in two tf32 parts (22 bits), products are exact, sums fp32. The
// mma's own reduction replaces ~250 shuffles a warp. The block that arrives last adds the 40 partials of each value in a
// fixed order and does the Sinkhorn, one thread a row:
//   the running matrix is r_i A_ij c_j, so a row step is q_i <- sum_j A_ij c_j + eps*q_i, r_i = 1/q_i: the same mathematics
//   as dividing the matrix 39 times, eps included, with two reciprocals a half step and no shuffle.
// W does not depend on the kernel before: with programmatic dependent launch its read overlaps that kernel's tail.
//
// Versions, us at T = 1 / 6 / 8 with dependent launch, one H200, 2026-11-29 (kernels/results):
//   v1 Sinkhorn by four reciprocal products a half step, one warp           5.19 / 5.18 / 5.20   run 2
//   v2 a row a warp in the last block, one release-acquire atomic           5.49 / 6.09 / 6.17   run 3: the warps share the MUFU
//   v3 v2's sums, v1's one warp; the finish not inlined                     6.02 / 6.02 / 6.05   run 5 (variant)
//   v4 v3, and every block runs the finish once beforehand (warm code)      5.97 / 6.11 / 6.35   run 5: code fetch is not the cost
//   v5 v1 with the brackets beside the reciprocal                           5.11 / 5.13 / 5.10   run 8
//   v6 v5 with one release-acquire atomic instead of two fences (used)      5.01 / 5.03 / 5.01   run 13
// 19 of the 20 steps cost 1.05-1.07 us; without dependent launch the kernel takes 5.69 / 5.81 / 5.82.
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kK = 4 * kHidden, kOut = 24, kTile = 8;
constexpr int kSlices = 40, kSliceK = kK / kSlices, kGroups = kOut / 8, kItems = kSlices * kGroups;
constexpr int kThreads = 256, kWarps = kThreads / 32, kWarpK = kSliceK / kWarps, kSteps = kWarpK / 16;
constexpr int kValues = kTile * (kOut + 1);  // per row 24 dot products and the sum of squares
constexpr int kMaxRows = 256, kCounterBytes = (kMaxRows / kTile) * 128;
static_assert(kSteps * 16 * kWarps * kSlices == kK, "the slices cover K");

struct Args {
  const char* residual;
  const float *weight, *scale, *base;
  float *pre, *post, *comb, *partials;
  char* counters;
  int rows, iterations;
  float rms_eps, hc_eps;
};

__device__ __forceinline__ float reciprocal(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
// v_i <- sum_j A_ij / d_j + eps*v_i for the vector of four, with two reciprocals instead of four divisions and nothing but an
// FMA pair after them: A_i0/d0 + A_i1/d1 = (A_i0*d1 + A_i1*d0) * 1/(d0*d1), whose bracket runs beside the reciprocal.
// The d stay within 1e-7..1e7, so no product leaves fp32. stride: 4 for rows of A, 1 for columns.
template <int kRow, int kColumn>
__device__ __forceinline__ void half_step(const float (&a)[16], const float (&d)[4], float eps, float (&v)[4]) {
  const float i01 = reciprocal(d[0] * d[1]), i23 = reciprocal(d[2] * d[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float s01 = __fmaf_rn(a[kRow * i], d[1], a[kRow * i + kColumn] * d[0]);
    const float s23 = __fmaf_rn(a[kRow * i + 2 * kColumn], d[3], a[kRow * i + 3 * kColumn] * d[2]);
    v[i] = __fmaf_rn(i01, s01, __fmaf_rn(i23, s23, eps * v[i]));
  }
}

__device__ __forceinline__ void sinkhorn(const float (&a)[16], int iterations, float eps, float* out) {
  float q[4] = {1, 1, 1, 1}, p[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) p[j] = ((a[j] + a[4 + j]) + (a[8 + j] + a[12 + j])) + eps;
#pragma unroll 1
  for (int step = 1; step < iterations; ++step) {
    half_step<4, 1>(a, p, eps, q);
    half_step<1, 4>(a, q, eps, p);
  }
  float c[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) c[j] = reciprocal(p[j]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float r = reciprocal(q[i]);
    *reinterpret_cast<float4*>(out + 4 * i) =
        make_float4(r * a[4 * i] * c[0], r * a[4 * i + 1] * c[1], r * a[4 * i + 2] * c[2], r * a[4 * i + 3] * c[3]);
  }
}

// The last block of a tile: all sums, then the coefficients of up to 8 rows.
__device__ void finish(const Args& a, int tile, float factor, float offset, float* sums, float* matrix) {
  const int tid = threadIdx.x, first = tile * kTile, valid = min(kTile, a.rows - first);
  if (tid < valid * (kOut + 1)) {
    const float* part = a.partials + int64_t(tile) * kSlices * kValues + tid;
    float chain[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) chain[i] = __ldcg(part + i * kValues);
#pragma unroll
    for (int s = 4; s < kSlices; s += 4)
#pragma unroll
      for (int i = 0; i < 4; ++i) chain[i] += __ldcg(part + (s + i) * kValues);
    sums[tid] = (chain[0] + chain[1]) + (chain[2] + chain[3]);
  }
  __syncthreads();
  if (tid < kTile * 16) {
    const int row = tid / 16, e = tid % 16;
    float value = 0.0f;
    if (row < valid) {
      const float inverse = rsqrtf(sums[row * (kOut + 1) + kOut] * (1.0f / kK) + a.rms_eps);
      value = __fmaf_rn(factor, sums[row * (kOut + 1) + 8 + e] * inverse, offset);
    }
    float top = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float power = expf(value - top);
    float total = power + __shfl_xor_sync(0xffffffffu, power, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    matrix[tid] = power / total + a.hc_eps;
  } else if (tid < kTile * 24) {
    const int row = (tid - kTile * 16) / 8, e = tid % 8;
    if (row < valid) {
      const float inverse = rsqrtf(sums[row * (kOut + 1) + kOut] * (1.0f / kK) + a.rms_eps);
      const float logit = __fmaf_rn(factor, sums[row * (kOut + 1) + e] * inverse, offset);
      const float gate = 1.0f / (1.0f + expf(-logit));
      if (e < 4)
        a.pre[(first + row) * 4 + e] = gate + a.hc_eps;
      else
        a.post[(first + row) * 4 + e - 4] = 2.0f * gate;
    }
  }
  __syncthreads();
  if (tid < valid) {
    float m[16];
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(matrix + tid * 16 + i);
      m[i] = v.x, m[i + 1] = v.y, m[i + 2] = v.z, m[i + 3] = v.w;
    }
    sinkhorn(m, a.iterations, a.hc_eps, a.comb + (first + tid) * 16);
  }
}

__device__ __forceinline__ void load_w(const Args& a, int item, int warp, int lane, float4 (&w)[kSteps]) {
  const int slice = item % kItems / kGroups, group = item % kGroups;
  const float* from = a.weight + (group * 8 + (lane >> 2)) * kK + slice * kSliceK + warp * kWarpK + (lane & 3) * 4;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint4 v = load_weight(from + s * 16);
    w[s] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
  }
}

__global__ void __launch_bounds__(kThreads) stats_kernel(const __grid_constant__ Args a) {
  __shared__ float warp_part[kWarps][kTile * 8 + kTile];
  __shared__ float sums[kValues];
  __shared__ alignas(16) float matrix[kTile * 16];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  const int tiles = (a.rows + kTile - 1) / kTile, items = tiles * kItems;

  pdl_release();
  float4 w[kSteps];
  if (blockIdx.x < items) load_w(a, blockIdx.x, warp, lane, w);
  // What this thread needs if its block comes last: a cold read here costs nothing, there it would cost a DRAM latency.
  const int output = tid < kTile * 16 ? 8 + tid % 16 : tid % 8;
  const float factor = a.scale[output / 4 < 2 ? output / 4 : 2], offset = a.base[output];
  pdl_wait();

  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    if (item != blockIdx.x) load_w(a, item, warp, lane, w);
    const int tile = item / kItems, slice = item % kItems / kGroups, group = item % kGroups;
    const int row = tile * kTile + g;
    uint2 r[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      r[s] = make_uint2(0, 0);
      if (row < a.rows) r[s] = load_act2(a.residual + (int64_t(row) * kK + slice * kSliceK + warp * kWarpK + s * 16 + t * 4) * 2);
    }
    float high[2][4] = {}, low[2][4] = {}, square = 0.0f;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const float x[4] = {bf_lo(r[s].x), bf_hi(r[s].x), bf_lo(r[s].y), bf_hi(r[s].y)};
      const float v[4] = {w[s].x, w[s].y, w[s].z, w[s].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) square = __fmaf_rn(x[e], x[e], square);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t a0 = __float_as_uint(x[2 * half]), a2 = __float_as_uint(x[2 * half + 1]);
        const uint32_t h0 = __float_as_uint(v[2 * half]) & 0xffffe000u, h1 = __float_as_uint(v[2 * half + 1]) & 0xffffe000u;
        const float l0 = v[2 * half] - __uint_as_float(h0), l1 = v[2 * half + 1] - __uint_as_float(h1);
        mma_tf32(high[half], a0, 0u, a2, 0u, h0, h1);
        mma_tf32(low[half], a0, 0u, a2, 0u, __float_as_uint(l0), __float_as_uint(l1));
      }
    }
    square += __shfl_xor_sync(0xffffffffu, square, 1);
    square += __shfl_xor_sync(0xffffffffu, square, 2);
    warp_part[warp][g * 8 + 2 * t] = (high[0][0] + high[1][0]) + (low[0][0] + low[1][0]);
    warp_part[warp][g * 8 + 2 * t + 1] = (high[0][1] + high[1][1]) + (low[0][1] + low[1][1]);
    if (t == 0) warp_part[warp][kTile * 8 + g] = square;
    __syncthreads();
    if (tid < kTile * 8 + (group == 0 ? kTile : 0)) {
      const bool dot = tid < kTile * 8;
      const int of_row = dot ? tid / 8 : tid - kTile * 8, value = dot ? group * 8 + tid % 8 : kOut;
      float sum = warp_part[0][tid];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += warp_part[i][tid];
      a.partials[(int64_t(tile) * kSlices + slice) * kValues + of_row * (kOut + 1) + value] = sum;
    }
    if (arrive_last(reinterpret_cast<uint32_t*>(a.counters + tile * 128), kItems)) finish(a, tile, factor, offset, sums, matrix);
  }
}
}  // namespace

extern "C" int64_t b300k_stats_workspace(int rows) {
  const int tiles = (rows + kTile - 1) / kTile;
  return kCounterBytes + int64_t(tiles < 1 ? 1 : tiles) * kSlices * kValues * int64_t(sizeof(float));
}

extern "C" int b300k_stats(const void* residual, const float* weight, const float* scale, const float* base, float* out_pre,
                           float* out_post, float* out_comb, void* workspace, int rows, float rms_eps, float hc_eps,
                           int iterations, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!residual || !weight || !scale || !base || !out_pre || !out_post || !out_comb || !workspace) return B300K_NULL;
  for (const void* p : {residual, static_cast<const void*>(weight), static_cast<const void*>(out_comb), static_cast<const void*>(workspace)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > 65535 || iterations < 1) return B300K_BAD_LAUNCH;
  const int items = (rows + kTile - 1) / kTile * kItems;
  Args a = {static_cast<const char*>(residual), weight, scale, base, out_pre, out_post, out_comb,
            reinterpret_cast<float*>(static_cast<char*>(workspace) + kCounterBytes), static_cast<char*>(workspace),
            rows, iterations, rms_eps, hc_eps};
  return launch(stats_kernel, blocks < items ? blocks : items, kThreads, 1, pdl, stream, 0, a);
}
