// K6, a skinny GEMM over block-scaled weights: y = x W^T for up to 8 rows of x. One launch.
//
//   W [N,K] E4M3 with one UE8M0 scale per 32x32 block: W_nk = code_nk * 2^(scale[n/32][k/32] - 127), exact in bf16
//   y [T,N] bf16 = bf16( sum_k x_tk * W_nk ), fp32 sums
//
// in   x [T,K] bf16, T <= 8 ; codes [N,K], scales [N/32,K/32] uint8 ; N % 128 == 0, K % (64*ranks) == 0
// Uses: wq_b [32768,1280], wo_b [5120,8192] (42 MB each: 9.8 us at 4.3 TB/s) and their TP4 shards [8192,1280], [5120,2048].
// The checkpoint stores these weights so; SGLang on Hopper multiplies a bf16 copy of twice the bytes.
//
// How: a warp owns 16 rows of W over its block's slice of K, 64 columns a step: two 16-byte loads a lane, U steps in flight.
// Codes become bf16 by moving bits (sign | exponent,mantissa >> 4) and one bf16x2 product with 2^(120+scale-127), which is
// exact, subnormals included; bf16 mma with the 8 rows of x as N then sums K. The k order inside a step is permuted the same
// way for both operands (bytes 0,2 | 1,3 of a word), so no byte is shuffled. x is staged once in shared memory, in that order.
// `ranks` > 1: a cluster of blocks shares 128 rows and splits K; the partials go to the row's owner block in shared memory
// (st.async on an mbarrier) and are added in rank order. W is read before the wait on the kernel before.
//
// Limits, checked when weights are loaded (gemv/ops.py): codes hold no NaN, scale bytes are at most 134 (2^7). |x| < 2^60.
// Several blocks fit an SM on purpose: with one (168 registers, 128 blocks in all) a cluster of 8 needs 8 free SMs of one GPC, an
// H200 has no room for 16 such clusters at once, and the second wave doubled the time (wo_b 26.9 us, 2026-11-29).
// The bits depend on `ranks`, which the launch choice derives from the shape alone (never from the GPU), not on the grid.
//
// Versions, us at T = 1 / 6 / 8, wq_b | wo_b, one H200, 2026-11-29 (kernels/results):
//   v1 this one; wq_b without, wo_b with dependent launch                   14.3 / 14.7 / 14.8 | 14.2 / 15.1 / 15.2   run 8
//   v2 128 blocks, one an SM, 10-16 warps, 5-8 steps in flight              15.6 / 16.1 / 16.5 | 26.9 / 26.9 / 27.1   run 5
//   v3 v1 with x by cp.async in natural order                               14.1 / 15.9 / 16.7 | 15.1 / 15.7 / 15.8   run 7
//   wq_b with dependent launch 16.0 / 17.4 / 17.5: early blocks of the next call crowd some SMs.
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kThreads = 256, kWarps = kThreads / 32, kBlockRows = kWarps * 16, kTokens = 8, kDepth = 4;

struct Args {
  const char *x, *codes;
  const uint8_t* scales;
  char* y;
  int rows, n, k, slice;  // slice: columns of K a block takes
};

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ uint32_t of_rank(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ uint32_t times(uint32_t pair, uint32_t factor) {
  uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(factor));
  return out;
}
// Four E4M3 codes -> bf16 pairs (0,2) and (1,3), scaled.
__device__ __forceinline__ void widen(uint32_t word, uint32_t factor, uint32_t& even, uint32_t& odd) {
  even = times(((word << 8) & 0x80008000u) | ((word << 4) & 0x07f007f0u), factor);
  odd = times((word & 0x80008000u) | ((word >> 4) & 0x07f007f0u), factor);
}
struct Step {
  uint4 upper, lower;  // 16 codes of rows g and g+8
  uint32_t scale;
};
__device__ __forceinline__ uint32_t factor_of(uint32_t scale) { return (scale + 120u) * 0x00800080u; }

template <int RANKS>
__global__ void __launch_bounds__(kThreads) gemv_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char shared[];  // x, permuted: [8][slice*2 + 16] bytes
  __shared__ alignas(16) float received[RANKS][RANKS == 1 ? 4 : kBlockRows * kTokens / RANKS];
  __shared__ alignas(16) uint16_t staged[kTokens][RANKS == 1 ? kBlockRows : 8];
  __shared__ alignas(8) uint64_t arrived;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  uint32_t rank = 0;
  if constexpr (RANKS > 1) {
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (tid == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  pdl_release();
  const int block_row = blockIdx.x / RANKS * kBlockRows, row = block_row + warp * 16, column = int(rank) * a.slice;
  const char* upper = a.codes + int64_t(row + g) * a.k + column + t * 16;
  const char* lower = upper + int64_t(8) * a.k;
  const uint8_t* scales = a.scales + int64_t(row / 32) * (a.k / 32) + column / 32 + (t >> 1);
  const int steps = a.slice / 64;

  Step ahead[kDepth];
  auto load = [&](int step, Step& into) {
    into.upper = load_weight(upper + step * 64);
    into.lower = load_weight(lower + step * 64);
    into.scale = __ldg(scales + step * 2);
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i)
    if (i < steps) load(i, ahead[i]);
  pdl_wait();

  // x into shared memory: words of four columns become the pairs (0,2) and (1,3). A row of 16 bytes of padding: no conflicts.
  const int stride = a.slice * 2 + 16;
  for (int i = tid; i < kTokens * (a.slice / 8); i += kThreads) {
    const int token = i / (a.slice / 8), at = i % (a.slice / 8);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (token < a.rows) v = load_act(a.x + (int64_t(token) * a.k + column + at * 8) * 2);
    const uint4 paired = make_uint4(__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.x, v.y, 0x7632), __byte_perm(v.z, v.w, 0x5410),
                                    __byte_perm(v.z, v.w, 0x7632));
    *reinterpret_cast<uint4*>(shared + token * stride + at * 16) = paired;
  }
  __syncthreads();

  float sum[2][4] = {};
  const char* mine = shared + g * stride + t * 32;
  auto consume = [&](int step, const Step& w) {
    const uint32_t factor = factor_of(w.scale);
    const uint4 low = *reinterpret_cast<const uint4*>(mine + step * 128), high = *reinterpret_cast<const uint4*>(mine + step * 128 + 16);
    const uint32_t up[4] = {w.upper.x, w.upper.y, w.upper.z, w.upper.w}, down[4] = {w.lower.x, w.lower.y, w.lower.z, w.lower.w};
    const uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a0, a1, a2, a3;
      widen(up[i], factor, a0, a2);
      widen(down[i], factor, a1, a3);
      mma_bf16(sum[i & 1], a0, a1, a2, a3, x[2 * i], x[2 * i + 1]);
    }
  };
  int step = 0;
  for (; step + kDepth <= steps; step += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      consume(step + i, ahead[i]);
      if (step + i + kDepth < steps) load(step + i + kDepth, ahead[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i)
    if (step + i < steps) consume(step + i, ahead[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[0][i] += sum[1][i];

  // sum[0]: (row g, tokens 2t, 2t+1), (row g+8, tokens 2t, 2t+1)
  if constexpr (RANKS == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      staged[2 * t + (i & 1)][warp * 16 + g + (i >> 1) * 8] = __bfloat16_as_ushort(__float2bfloat16_rn(sum[0][i]));
    __syncthreads();
    if (tid < kTokens * kBlockRows / 8) {
      const int token = tid / (kBlockRows / 8), at = tid % (kBlockRows / 8) * 8;
      if (token < a.rows)
        *reinterpret_cast<uint4*>(a.y + (int64_t(token) * a.n + block_row + at) * 2) = *reinterpret_cast<const uint4*>(&staged[token][at]);
    }
  } else {
    constexpr int kOwned = kBlockRows / RANKS;  // rows of W that a rank finishes
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const uint32_t barrier = shared_address(&arrived);
    if (tid == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kBlockRows * kTokens * 4) : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int in_block = warp * 16 + g + (i >> 1) * 8, owner = in_block / kOwned, token = 2 * t + (i & 1);
      const uint32_t target = of_rank(shared_address(&received[rank][token * kOwned + in_block % kOwned]), owner);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target),
                   "r"(__float_as_uint(sum[0][i])), "r"(of_rank(barrier, owner))
                   : "memory");
    }
    // All threads wait, so that no block leaves while a neighbour still writes to it.
    uint32_t done = 0;
    while (!done)  // ends: the cluster is co-scheduled and every block of it sends its share
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier)
          : "memory");
    if (tid < kTokens * kOwned / 2) {
      const int token = tid / (kOwned / 2), at = tid % (kOwned / 2) * 2;
      float2 total = *reinterpret_cast<const float2*>(&received[0][token * kOwned + at]);
#pragma unroll
      for (int r = 1; r < RANKS; ++r) {
        const float2 next = *reinterpret_cast<const float2*>(&received[r][token * kOwned + at]);
        total = make_float2(total.x + next.x, total.y + next.y);
      }
      if (token < a.rows)
        *reinterpret_cast<uint32_t*>(a.y + (int64_t(token) * a.n + block_row + rank * kOwned + at) * 2) = bf_pack(total.x, total.y);
    }
  }
}

template <int RANKS>
int start(const Args& a, int pdl, void* stream) {
  const int bytes = kTokens * (a.slice * 2 + 16);
  if (bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(gemv_kernel<RANKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return int(error);
  }
  return launch(gemv_kernel<RANKS>, a.n / kBlockRows * RANKS, kThreads, RANKS, pdl, stream, bytes, a);
}
}  // namespace

extern "C" int b300k_gemv(const void* x, const void* codes, const void* scales, void* y, int rows, int n, int k, int ranks, int pdl,
                          void* stream) {
  if (rows < 0 || rows > kTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !codes || !scales || !y) return B300K_NULL;
  for (const void* p : {x, codes, static_cast<const void*>(y)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (ranks < 1 || n < kBlockRows || n % kBlockRows != 0 || k < 64 || k % (64 * ranks) != 0 || k / ranks > 4096) return B300K_BAD_LAUNCH;
  const Args a = {static_cast<const char*>(x), static_cast<const char*>(codes), static_cast<const uint8_t*>(scales), static_cast<char*>(y),
                  rows, n, k, k / ranks};
  switch (ranks) {
    case 1: return start<1>(a, pdl, stream);
    case 2: return start<2>(a, pdl, stream);
    case 4: return start<4>(a, pdl, stream);
    case 8: return start<8>(a, pdl, stream);
    default: return B300K_BAD_LAUNCH;
  }
}
