// K6, a skinny GEMV over block-scaled weights: y = x W^T for up to 8 rows of x. One launch.
//
//   W [N,K] E4M3 with one UE8M0 scale per 32x32 block: W_nk = code_nk * 2^(scale[n/32][k/32] - 127), exact in bf16
//   y [T,N] bf16 = bf16( sum_k x_tk * W_nk ), fp32 sums
//
// in   x [T,K] bf16, T <= 8 ; codes [N,K], scales [N/32,K/32] uint8 ; N % 32 == 0, K one of those below
// Uses: wq_b [32768,1280], wo_b [5120,8192] (42 MB each: 9.8 us at 4.3 TB/s), their TP4 shards [8192,1280], [5120,2048], and the
// shared expert [4608,5120], [5120,2304]. The checkpoint stores these weights so; SGLang on Hopper multiplies a bf16 copy of
// twice the bytes.
//
// How: common/stream.cuh. One block an SM, 16 rows of W with all of K a unit, no sum crosses a block.
//
// Limits, checked when weights are loaded (gemv/ops.py): codes hold no NaN, scale bytes are at most 134 (2^7). |x| < 2^80.
//
// Versions, us at T = 1 / 6 / 8, wq_b | wo_b, one H200, 2026-11-29 (kernels/results):
//   v1 loads to registers, 256-320 blocks, clusters split K (wo_b)          14.3 / 14.7 / 14.8 | 14.2 / 15.1 / 15.2   run 8
//   v2 128 blocks, one an SM, 10-16 warps, 5-8 steps in flight              15.6 / 16.1 / 16.5 | 26.9 / 26.9 / 27.1   run 5
//   v3 v1 with x by cp.async in natural order                               14.1 / 15.9 / 16.7 | 15.1 / 15.7 / 15.8   run 7
//   v4 bulk copies, one persistent block an SM, x in registers, 8 rows      19.5 /  -   / 20.0 | 20.3 /  -   / 21.7   run 9
//   v5 v4, the warps never meet, one copy a stage                           15.9 /  -   / 16.3 | 15.1 /  -   / 16.8   run 10
//   v6 v5 with 16 rows, f16 by conversion                                   14.9 /  -   / 15.7 | 14.1 /  -   / 15.9   run 11
//   v7 v6, all warps start copies (used)                                    13.6 / 14.2 / 14.4 | 14.6 / 15.5 / 16.0   run 13
// The TP4 shards gain more than the whole ones: 6.7 -> 5.7 and 6.0 -> 5.6. wo_b at T=8 lost 0.8 us against v1, which read an eighth of x.
#include "../common/api.h"
#include "write.cuh"

namespace {
using namespace b300k;

template <class S>
__global__ void __launch_bounds__(kStreamThreads, 1) gemv_kernel(const __grid_constant__ StreamArgs a, char* y) {
  extern __shared__ __align__(128) char stages[];
  __shared__ typename S::Shared shared;
  Write sink = {y, a.rows, a.n};
  S::run(a, stages, shared, sink);
}

template <int STEPS, int SPLITS, int TEAMS>
int start(const StreamArgs& a, void* y, int blocks, int pdl, void* stream) {
  using S = Stream<kBlocks, STEPS, SPLITS, TEAMS, 1>;
  const int items = a.n / S::kItemRows;
  return launch_stream(gemv_kernel<S>, S::kSharedBytes, blocks < items ? blocks : items, pdl, stream, a, static_cast<char*>(y));
}
}  // namespace

extern "C" int b300k_gemv(const void* x, const void* codes, const void* scales, void* y, int rows, int n, int k, int blocks, int pdl,
                          void* stream) {
  if (rows < 0 || rows > kStreamTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !codes || !scales || !y) return B300K_NULL;
  for (const void* p : {x, codes, static_cast<const void*>(y)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > 65535 || n < 32 || n % 32 != 0) return B300K_BAD_LAUNCH;
  const StreamArgs a = {static_cast<const char*>(x), static_cast<const char*>(codes), static_cast<const uint8_t*>(scales), int64_t(k) * 2,
                        rows, n, n};
  switch (k) {  // launch.GEMV_K lists these
    case 512: return start<2, 1, 2>(a, y, blocks, pdl, stream);
    case 1024: return start<2, 1, 1>(a, y, blocks, pdl, stream);
    case 1280: return start<5, 1, 2>(a, y, blocks, pdl, stream);
    case 2048: return start<4, 1, 1>(a, y, blocks, pdl, stream);
    case 2304: return start<9, 1, 2>(a, y, blocks, pdl, stream);
    case 4096: return start<4, 2, 1>(a, y, blocks, pdl, stream);
    case 5120: return start<5, 2, 1>(a, y, blocks, pdl, stream);
    case 8192: return start<4, 4, 1>(a, y, blocks, pdl, stream);
    default: return B300K_BAD_LAUNCH;
  }
}
