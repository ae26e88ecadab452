// K3b, the wqkv_a projection with K3 behind it: qkv = bf16(x Wqkv^T), then q norm and quantisation beside kv norm, rope and paged
// insert. Two launches that overlap.
//
// in   x [T,5120] bf16, T <= 8 ; W [1792,5120]: bf16, or E4M3 with 32x32 UE8M0 blocks ; the rest as K3 (qkv/qkv.cu)
// out  as K3; qkv itself stays in the workspace
// Bytes: 18.4 MB bf16 (a cold read takes 5.6 us with its launch), 9.2 MB FP8 (3.6 us).
//
// How: common/stream.cuh for the product, 112 units of 16 rows, bf16 to the workspace; K3 is launched behind it as its dependent,
// so that its start and its weights are there when the last sum is. The norm needs all 1280 (512) values of a row: something has
// to wait for all blocks, and a dependent launch is the cheapest way to.
//
// Versions, us at T = 1 / 6 / 8, FP8 | bf16, one H200 (kernels/results):
//   v1 one launch: the block that arrives last finishes, a warp a row's q or kv    9.1 / 10.5 / 11.2 | 8.9 / 11.8 / 12.6   run 9
//   v2 two launches (used)                                                         6.6 /  7.2 /  7.7 | 6.5 /  7.5 /  7.8   run 13
// FP8 gains nothing over bf16 here: 112 units for 132 SMs, each a start and two stages long; the bytes are not the bound.
#include "../common/api.h"
#include "../common/stream.cuh"
#include "../gemv/write.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kRow = 1792;

template <class S>
__global__ void __launch_bounds__(kStreamThreads, 1) qkvproj_kernel(const __grid_constant__ StreamArgs a, char* qkv) {
  extern __shared__ __align__(128) char stages[];
  __shared__ typename S::Shared shared;
  Write sink = {qkv, a.rows, a.n};
  S::run(a, stages, shared, sink);
}

template <class S>
int start(const StreamArgs& a, char* qkv, int blocks, int pdl, void* stream) {
  return launch_stream(qkvproj_kernel<S>, S::kSharedBytes, blocks < a.n / S::kItemRows ? blocks : a.n / S::kItemRows, pdl, stream, a, qkv);
}
}  // namespace

extern "C" int64_t b300k_qkvproj_workspace(int) { return kStreamTokens * kRow * 2; }

extern "C" int b300k_qkvproj(const void* x, const void* weight, const void* scales, const void* q_weight, const void* kv_weight,
                             const float* cos_sin, const void* positions, const int32_t* slots, void* out_q, void* out_q8,
                             void* out_q_scale, void* cache, void* workspace, int64_t cache_slots, int rows, float eps,
                             int positions_are_64, int layout, int page_bits, int64_t page_bytes, int64_t max_position,
                             int scale_layout, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kStreamTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !weight || !workspace) return B300K_NULL;
  for (const void* p : {x, weight, static_cast<const void*>(workspace)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > 65535) return B300K_BAD_LAUNCH;
  char* qkv = static_cast<char*>(workspace);
  const StreamArgs a = {static_cast<const char*>(x), static_cast<const char*>(weight), static_cast<const uint8_t*>(scales), kHidden * 2,
                        rows, kRow, kRow};
  const int code = scales == nullptr ? start<Stream<kBf16, 5, 2, 1, 1>>(a, qkv, blocks, pdl, stream)
                                     : start<Stream<kBlocks, 5, 2, 1, 1>>(a, qkv, blocks, pdl, stream);
  if (code != 0) return code;
  return b300k_qkv(qkv, q_weight, kv_weight, cos_sin, positions, slots, out_q, out_q8, out_q_scale, cache, cache_slots, rows, eps,
                   positions_are_64, layout, page_bits, page_bytes, max_position, scale_layout, 2 * rows, pdl, stream);
}
