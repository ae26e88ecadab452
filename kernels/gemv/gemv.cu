// K6, a skinny GEMM over block-scaled weights: y = x W^T for up to 8 rows of x. One launch.
//
//   W [N,K] E4M3 with one UE8M0 scale per 32x32 block: W_nk = code_nk * 2^(scale[n/32][k/32] - 127), exact in bf16
//   y [T,N] bf16 = bf16( sum_k x_tk * W_nk ), fp32 sums
//
// in   x [T,K] bf16, T <= 8 ; codes [N,K], scales [N/32,K/32] uint8 ; N % 128 == 0, K % (64*ranks) == 0
// Uses: wq_b [32768,1280], wo_b [5120,8192] (42 MB each: 9.8 us at 4.3 TB/s) and their TP4 shards [8192,1280], [5120,2048].
// The checkpoint stores these weights so; SGLang on Hopper multiplies a bf16 copy of twice the bytes.
//
// How: a block takes 16*WARPS*TILES rows of W and a slice of K, a warp 16 rows at a time, 64 columns a step: two 16-byte loads
// a lane, DEPTH steps in flight. Codes become bf16 by moving bits (sign | exponent,mantissa >> 4) and one bf16x2 product with
// 2^(120+scale-127), which is exact, subnormals included; bf16 mma with the 8 rows of x as N then sums K. x is copied once to
// shared memory (cp.async), while the first weights are on their way.
// `ranks` > 1: a cluster of blocks shares the rows and splits K; the partials go to the row's owner block in shared memory
// (st.async on an mbarrier) and are added in rank order. W is read before the wait on the kernel before.
// Three blocks fit an SM on purpose: with one, a cluster of 8 needs 8 free SMs of one GPC, an H200 has no room for 16 such
// clusters at once, and the second wave doubled the time (wo_b 26.9 us instead of 14.3, 2026-11-29).
//
// Limits, checked when weights are loaded (gemv/ops.py): codes hold no NaN, scale bytes are at most 134 (2^7). |x| < 2^60.
// The bits depend on `ranks`, which the launch choice derives from the shape alone (never from the GPU), not on the grid.
//
// Versions tried, with times: see the table "K6 versions" in kernels/README.md (written from kernels/results).
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kTokens = 8, kBlockRows = 128;

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
// Four E4M3 codes -> two bf16 pairs, scaled.
__device__ __forceinline__ uint32_t spread(uint32_t halves, uint32_t factor) {
  return times((halves & 0x80008000u) | ((halves >> 4) & 0x07f007f0u), factor);
}
__device__ __forceinline__ void widen(uint32_t word, uint32_t factor, uint32_t& first, uint32_t& second) {
  first = spread(__byte_perm(word, 0u, 0x1404), factor);
  second = spread(__byte_perm(word, 0u, 0x3424), factor);
}
struct Step {
  uint4 upper, lower;  // 16 codes of rows g and g+8
  uint32_t scale;
};
__device__ __forceinline__ uint32_t factor_of(uint32_t scale) { return (scale + 120u) * 0x00800080u; }

template <int WARPS, int TILES, int RANKS, int DEPTH>
__global__ void __launch_bounds__(WARPS * 32, 3) gemv_kernel(const __grid_constant__ Args a) {
  constexpr int kThreads = WARPS * 32;
  static_assert(kBlockRows == WARPS * TILES * 16, "a block's rows");
  extern __shared__ __align__(16) char shared[];  // x: [8][slice*2 + 16] bytes
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
  const int block_row = blockIdx.x / RANKS * kBlockRows, row = block_row + warp * TILES * 16, column = int(rank) * a.slice;
  const char* upper = a.codes + int64_t(row + g) * a.k + column + t * 16;
  const char* lower = upper + int64_t(8) * a.k;
  const uint8_t* scales = a.scales + column / 32 + (t >> 1);
  const int steps = a.slice / 64;  // of a tile; a multiple of DEPTH

  Step ahead[DEPTH];
  auto load = [&](int tile, int step, Step& into) {
    into.upper = load_weight(upper + int64_t(tile) * 16 * a.k + step * 64);
    into.lower = load_weight(lower + int64_t(tile) * 16 * a.k + step * 64);
    into.scale = __ldg(scales + int64_t((row + tile * 16) / 32) * (a.k / 32) + step * 2);
  };
#pragma unroll
  for (int i = 0; i < DEPTH; ++i) load(0, i, ahead[i]);
  pdl_wait();

  // A row of x is padded by 16 bytes: the eight rows then lie in different banks.
  const int stride = a.slice * 2 + 16, chunks = a.slice / 8;
  for (int i = tid; i < kTokens * chunks; i += kThreads) {
    const int token = i / chunks, at = i % chunks;
    char* to = shared + token * stride + at * 16;
    if (token < a.rows)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
                   "l"(a.x + (int64_t(token) * a.k + column + at * 8) * 2)
                   : "memory");
    else
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  float sum[TILES][2][4] = {};
  const char* mine = shared + g * stride + t * 32;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    for (int step = 0; step < steps; step += DEPTH) {
#pragma unroll
      for (int i = 0; i < DEPTH; ++i) {
        const uint32_t factor = factor_of(ahead[i].scale);
        const uint4 low = *reinterpret_cast<const uint4*>(mine + (step + i) * 128);
        const uint4 high = *reinterpret_cast<const uint4*>(mine + (step + i) * 128 + 16);
        const uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const uint32_t up[4] = {ahead[i].upper.x, ahead[i].upper.y, ahead[i].upper.z, ahead[i].upper.w};
        const uint32_t down[4] = {ahead[i].lower.x, ahead[i].lower.y, ahead[i].lower.z, ahead[i].lower.w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          uint32_t a0, a1, a2, a3;
          widen(up[word], factor, a0, a2);
          widen(down[word], factor, a1, a3);
          mma_bf16(sum[tile][word & 1], a0, a1, a2, a3, x[2 * word], x[2 * word + 1]);
        }
        const bool further = step + DEPTH < steps;
        if (further || tile + 1 < TILES) load(further ? tile : tile + 1, further ? step + DEPTH + i : i, ahead[i]);
      }
    }
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[tile][0][i] += sum[tile][1][i];

  // sum[tile][0]: (row g, tokens 2t, 2t+1), (row g+8, tokens 2t, 2t+1)
  if constexpr (RANKS == 1) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        staged[2 * t + (i & 1)][(warp * TILES + tile) * 16 + g + (i >> 1) * 8] = __bfloat16_as_ushort(__float2bfloat16_rn(sum[tile][0][i]));
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
    for (int of = 0; of < TILES * 4; ++of) {
      const int tile = of / 4, i = of % 4, in_block = (warp * TILES + tile) * 16 + g + (i >> 1) * 8, owner = in_block / kOwned, token = 2 * t + (i & 1);
      const uint32_t target = of_rank(shared_address(&received[rank][token * kOwned + in_block % kOwned]), owner);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target),
                   "r"(__float_as_uint(sum[tile][0][i])), "r"(of_rank(barrier, owner))
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
    for (int i = tid; i < kTokens * kOwned / 2; i += kThreads) {
      const int token = i / (kOwned / 2), at = i % (kOwned / 2) * 2;
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

template <int WARPS, int TILES, int RANKS, int DEPTH>
int start(const Args& a, int pdl, void* stream) {
  const int bytes = kTokens * (a.slice * 2 + 16);
  const auto kernel = gemv_kernel<WARPS, TILES, RANKS, DEPTH>;
  if (bytes > 32 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return int(error);
  }
  return launch(kernel, a.n / kBlockRows * RANKS, WARPS * 32, RANKS, pdl, stream, bytes, a);
}
template <int RANKS>
int of_depth(const Args& a, int pdl, void* stream) {
  const int steps = a.slice / 64;
  if (steps % 4 == 0) return start<8, 1, RANKS, 4>(a, pdl, stream);
  if (steps % 5 == 0) return start<8, 1, RANKS, 5>(a, pdl, stream);
  return start<8, 1, RANKS, 1>(a, pdl, stream);
}
}  // namespace

extern "C" int b300k_gemv(const void* x, const void* codes, const void* scales, void* y, int rows, int n, int k, int ranks, int pdl,
                          void* stream) {
  if (rows < 0 || rows > kTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !codes || !scales || !y) return B300K_NULL;
  for (const void* p : {x, codes, static_cast<const void*>(y)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (ranks < 1 || n < kBlockRows || n % kBlockRows != 0 || k < 64 ||
      k % (64 * ranks) != 0 || k / ranks > 4096)
    return B300K_BAD_LAUNCH;
  const Args a = {static_cast<const char*>(x), static_cast<const char*>(codes), static_cast<const uint8_t*>(scales), static_cast<char*>(y),
                  rows, n, k, k / ranks};
  switch (ranks) {
    case 1: return of_depth<1>(a, pdl, stream);
    case 4: return of_depth<4>(a, pdl, stream);
    case 8: return of_depth<8>(a, pdl, stream);
    default: return B300K_BAD_LAUNCH;
  }
}
