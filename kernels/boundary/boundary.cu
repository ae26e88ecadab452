// K1, the boundary between two sublayers: rebuild the four streams, collapse them, normalise, quantise. One launch.
//
//   R'_i = bf16( C0i*R0 (+) post_i*y (+) C1i*R1 (+) C2i*R2 (+) C3i*R3 )   first product rounded, then FMAs in this order
//   u    = bf16( pre_0*R'_0 (+) pre_1*R'_1 (+) pre_2*R'_2 (+) pre_3*R'_3 )
//   x    = bf16( (u * rsqrt(sum(u^2)/5120 + eps)) * w )
//   q, s = E4M3 codes and UE8M0 scales of x, one scale per 32 columns (only when out_q is given)
//
// in   y [T,5120] bf16 (null: no post, R' = R and is not written) ; residual R [T,4,5120] bf16 ; post [T,4], comb [T,4,4],
//      pre [T,4] fp32 (pre null: u = R'_0, the model's first sublayer) ; weight w [5120] bf16
// out  out_residual [T,4,5120] bf16 (may not alias residual) ; out_x [T,5120] bf16 ; out_q [T,5120] e4m3 ; out_scale
// Bytes at T=8: 0.08 y + 0.33 R + 0.33 R' + 0.08 x + 0.04 q = 0.87 MB, nearly all in L2: the launch is the floor.
//
// How: a row is one cluster of CL blocks; a thread owns 8 columns of all streams (five 16-byte loads in flight). The sum of
// squares is the only thing a row shares: each warp sends its partial to every block of the cluster with st.async on an
// mbarrier; all blocks add the same 20 partials in the same order, so the bits are the same for every CL and grid. The
// cluster handshake that must come before the first remote store is started before the loads and finished after them.
// The streams are stored only after the partial is sent: a release in between would wait for 40 KB of stores.
//
// Versions, us at T = 1 / 6 / 8, bf16+fp8, one H200, 2026-11-29 (kernels/results run 7):
//   a row a block of 640 threads                3.97 / 4.08 / 4.11; with dependent launch 3.49 / 3.57 / 3.59
//   a row a cluster of 2, st.async partials     3.15 / 3.25 / 3.26; with dependent launch 2.42 / 2.48 / 2.49
//   a cluster of 4                              2.62 / 2.66 / 2.67; with dependent launch 1.90 / 2.01 / 2.05
//   a cluster of 5 (used)                       2.42 / 2.47 / 2.47; with dependent launch 1.69 / 1.81 / 1.96
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kStreams = 4, kVec = 8, kThreadsPerRow = kHidden / kVec, kWarpsPerRow = kThreadsPerRow / 32;
constexpr int kMaxRows = 4096;

struct Args {
  const char *y, *residual, *weight;
  const float *post, *comb, *pre;
  char *out_residual, *out_x, *out_q, *out_scale;
  int rows, scale_layout;
  float eps;
};

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ uint32_t of_rank(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

template <int CL>
__global__ void __launch_bounds__(kThreadsPerRow / CL) boundary_kernel(const __grid_constant__ Args a) {
  constexpr int kThreads = kThreadsPerRow / CL, kWarps = kThreads / 32;
  __shared__ alignas(16) float partial[2][kWarpsPerRow];
  __shared__ alignas(8) uint64_t arrived[2];

  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  uint32_t rank = 0;
  if constexpr (CL > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int cluster_id = blockIdx.x / CL, clusters = gridDim.x / CL;
  const int column = (int(rank) * kThreads + tid) * kVec;

  if constexpr (CL > 1) {
    if (tid == 0) {
      for (int i = 0; i < 2; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[i])) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  pdl_release();
  const uint4 w_raw = load_weight(a.weight + column * 2);
  pdl_wait();

  bool met = CL == 1;
  int turn = 0;
  for (int row = cluster_id; row < a.rows; row += clusters, ++turn) {
    const int64_t row_byte = int64_t(row) * kHidden * 2;
    const bool has_post = a.y != nullptr, has_pre = a.pre != nullptr;
    uint4 y_raw = make_uint4(0, 0, 0, 0), r_raw[kStreams];
    if (has_post) y_raw = load_act(a.y + row_byte + column * 2);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) r_raw[j] = load_act(a.residual + row_byte * kStreams + (j * kHidden + column) * 2);
    float4 post = make_float4(0, 0, 0, 0), comb[4] = {}, pre = make_float4(0, 0, 0, 0);
    if (has_post) {
      post = *reinterpret_cast<const float4*>(a.post + row * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) comb[j] = *reinterpret_cast<const float4*>(a.comb + row * 16 + j * 4);
    }
    if (has_pre) pre = *reinterpret_cast<const float4*>(a.pre + row * 4);

    float u[kVec];
    uint4 stream_raw[kStreams];
    if (has_post) {
      float y[kVec], r[kStreams][kVec];
      unpack8(y_raw, y);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) unpack8(r_raw[j], r[j]);
      const float p[4] = {post.x, post.y, post.z, post.w};
      const float c[4][4] = {{comb[0].x, comb[0].y, comb[0].z, comb[0].w}, {comb[1].x, comb[1].y, comb[1].z, comb[1].w},
                             {comb[2].x, comb[2].y, comb[2].z, comb[2].w}, {comb[3].x, comb[3].y, comb[3].z, comb[3].w}};
#pragma unroll
      for (int i = 0; i < kStreams; ++i) {
        uint32_t packed[4];
#pragma unroll
        for (int e = 0; e < kVec; e += 2) {
          float value[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float acc = __fmul_rn(c[0][i], r[0][e + h]);
            acc = __fmaf_rn(p[i], y[e + h], acc);
#pragma unroll
            for (int j = 1; j < kStreams; ++j) acc = __fmaf_rn(c[j][i], r[j][e + h], acc);
            value[h] = acc;
          }
          packed[e / 2] = bf_pack(value[0], value[1]);
        }
        stream_raw[i] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kStreams; ++i) stream_raw[i] = r_raw[i];
    }

    unpack8(stream_raw[0], u);
    if (has_pre) {
      float s1[kVec], s2[kVec], s3[kVec];
      unpack8(stream_raw[1], s1);
      unpack8(stream_raw[2], s2);
      unpack8(stream_raw[3], s3);
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        float acc = __fmul_rn(pre.x, u[e]);
        acc = __fmaf_rn(pre.y, s1[e], acc);
        acc = __fmaf_rn(pre.z, s2[e], acc);
        acc = __fmaf_rn(pre.w, s3[e], acc);
        u[e] = __bfloat162float(__float2bfloat16_rn(acc));
      }
    }
    float square = 0.0f;
#pragma unroll
    for (int e = 0; e < kVec; ++e) square = __fmaf_rn(u[e], u[e], square);
    square = warp_sum(square);

    const int slot = turn & 1;
    if constexpr (CL > 1) {
      if (!met) {  // every block of the cluster runs and has its barriers: remote shared memory may be written
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        met = true;
      }
      const uint32_t barrier = shared_address(&arrived[slot]);
      if (tid == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kWarpsPerRow * 4) : "memory");
      if (lane < CL) {
        const uint32_t target = of_rank(shared_address(&partial[slot][rank * kWarps + warp]), lane);
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target),
                     "r"(__float_as_uint(square)), "r"(of_rank(barrier, lane))
                     : "memory");
      }
    } else {
      if (lane == 0) partial[slot][warp] = square;
      __syncthreads();
    }
    if (has_post) {
#pragma unroll
      for (int i = 0; i < kStreams; ++i)
        *reinterpret_cast<uint4*>(a.out_residual + row_byte * kStreams + (i * kHidden + column) * 2) = stream_raw[i];
    }
    if constexpr (CL > 1) {
      const uint32_t barrier = shared_address(&arrived[slot]), parity = (turn >> 1) & 1;
      uint32_t done = 0;
      while (!done)  // ends: the cluster is co-scheduled and each of its warps has sent or will send its four bytes
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    }
    const float4* parts = reinterpret_cast<const float4*>(partial[slot]);
    float4 sums = parts[0];
#pragma unroll
    for (int i = 1; i < kWarpsPerRow / 4; ++i) {
      const float4 next = parts[i];
      sums = make_float4(sums.x + next.x, sums.y + next.y, sums.z + next.z, sums.w + next.w);
    }
    const float inverse = rsqrtf(((sums.x + sums.y) + (sums.z + sums.w)) * (1.0f / kHidden) + a.eps);

    float w[kVec];
    unpack8(w_raw, w);
    uint32_t packed[4];
#pragma unroll
    for (int e = 0; e < kVec; e += 2)
      packed[e / 2] = bf_pack(__fmul_rn(__fmul_rn(u[e], inverse), w[e]), __fmul_rn(__fmul_rn(u[e + 1], inverse), w[e + 1]));
    const uint4 x_raw = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    *reinterpret_cast<uint4*>(a.out_x + row_byte + column * 2) = x_raw;

    if (a.out_q != nullptr) {
      float x[kVec];
      unpack8(x_raw, x);
      float amax = 0.0f;
      bool finite = true;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        amax = fmaxf(amax, fabsf(x[e]));
        finite = finite && fabsf(x[e]) < __uint_as_float(0x7f800000u);
      }
#pragma unroll
      for (int mask = 1; mask < 4; mask <<= 1) {
        amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
        finite = __shfl_xor_sync(0xffffffffu, int(finite), mask) && finite;
      }
      const Ue8m0 scale = ue8m0_of(amax, finite);
      uint32_t codes[4];
#pragma unroll
      for (int e = 0; e < kVec; e += 2) codes[e / 2] = e4m3x2(x[e] * scale.inverse, x[e + 1] * scale.inverse);
      *reinterpret_cast<uint2*>(a.out_q + int64_t(row) * kHidden + column) = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
      if ((tid & 3) == 0) a.out_scale[scale_offset(a.scale_layout, row, column / 32, kHidden / 32)] = char(scale.byte);
    }
    if (row + clusters < a.rows) __syncthreads();  // all warps have read this row's partials before any sends the next but one
  }
  if constexpr (CL > 1) {
    if (!met) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // a cluster without rows
  }
}
}  // namespace

extern "C" int b300k_boundary(const void* y, const void* residual, const float* post, const float* comb, const float* pre,
                              const void* weight, void* out_residual, void* out_x, void* out_q, void* out_scale, int rows,
                              float eps, int scale_layout, int cluster, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!residual || !weight || !out_x || (y && (!post || !comb || !out_residual)) || (out_q && !out_scale)) return B300K_NULL;
  for (const void* p : {y, residual, static_cast<const void*>(post), static_cast<const void*>(comb),
                        static_cast<const void*>(pre), weight, static_cast<const void*>(out_residual),
                        static_cast<const void*>(out_x), static_cast<const void*>(out_q)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > kMaxRows || scale_layout < 0 || scale_layout > 1) return B300K_BAD_LAUNCH;
  const Args a = {static_cast<const char*>(y), static_cast<const char*>(residual), static_cast<const char*>(weight),
                  post, comb, pre, static_cast<char*>(out_residual), static_cast<char*>(out_x), static_cast<char*>(out_q),
                  static_cast<char*>(out_scale), rows, scale_layout, eps};
  const int clusters = blocks < rows ? blocks : rows;
  switch (cluster) {
    case 1: return launch(boundary_kernel<1>, clusters, kThreadsPerRow, 1, pdl, stream, 0, a);
    case 2: return launch(boundary_kernel<2>, clusters * 2, kThreadsPerRow / 2, 2, pdl, stream, 0, a);
    case 4: return launch(boundary_kernel<4>, clusters * 4, kThreadsPerRow / 4, 4, pdl, stream, 0, a);
    case 5: return launch(boundary_kernel<5>, clusters * 5, kThreadsPerRow / 5, 5, pdl, stream, 0, a);
    default: return B300K_BAD_LAUNCH;
  }
}
