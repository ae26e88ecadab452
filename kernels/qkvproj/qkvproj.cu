// K3b, the wqkv_a projection with K3 behind it: qkv = bf16(x Wqkv^T), then q norm and quantisation beside kv norm, rope and paged
// insert. One launch.
//
// in   x [T,5120] bf16, T <= 8 ; W [1792,5120]: bf16, or E4M3 with 32x32 UE8M0 blocks ; the rest as K3 (qkv/qkv.cu)
// out  as K3; qkv itself stays in the workspace
// Bytes: 18.4 MB bf16 (a cold read takes 5.6 us with its launch), 9.2 MB FP8 (3.6 us).
//
// How: common/stream.cuh for the product: 224 units of 8 rows. The norm needs all 1280 (512) values of a row, so qkv goes to the
// workspace as bf16 and the block that arrives last finishes: a warp for q and one for kv of each row, 16 in all, nothing between
// them. qkv/finish.cuh does it for K3 too, and with the same bits from the same qkv (tested). The norm weights and the rows of
// the rope table are asked into L2 at the start, so that the last block does not wait for DRAM.
//
// Versions: see kernels/README.md for v1 (this one).
#include "../common/api.h"
#include "../common/stream.cuh"
#include "../qkv/finish.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kCounterBytes = 128;

struct Keep {
  char* qkv;
  int rows;
  __device__ void load(int, int, uint4&) {}
  __device__ void unit(int, int row, int lane, float2 sum) {
    const int token = lane >> 2;
    if (token < rows) *reinterpret_cast<uint32_t*>(qkv + (int64_t(token) * kRow + row + (lane & 3) * 2) * 2) = bf_pack(sum.x, sum.y);
  }
};

__device__ __noinline__ void finish_query(const QkvArgs& a, int row, int lane) {
  constexpr int kTurns = kQThreads / 32;
  float v[kTurns][8], part[kTurns];
  uint4 w[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    unpack8(load_act(a.qkv + (int64_t(row) * kRow + (i * 32 + lane) * 8) * 2), v[i]);
    w[i] = load_weight(a.q_weight + (i * 32 + lane) * 16);
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) part[i] = warp_sum(square_of(v[i]));
  const float inverse = rsqrtf((((part[0] + part[1]) + (part[2] + part[3])) + part[4]) * (1.0f / kQ) + a.eps);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) store_query(a, row, i * 32 + lane, v[i], w[i], inverse);
}

template <int LAYOUT>
__device__ __noinline__ void finish_key_value(const QkvArgs& a, int row, int lane) {
  constexpr int kTurns = kKv / 64;
  uint32_t raw[kTurns], w[kTurns];
  float s[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    raw[i] = __ldcg(reinterpret_cast<const unsigned*>(a.qkv + (int64_t(row) * kRow + kQ) * 2) + i * 32 + lane);
    w[i] = __ldg(reinterpret_cast<const unsigned*>(a.kv_weight) + i * 32 + lane);
  }
  const int slot = __ldcg(a.slots + row);
  const float2 turn = turn_of(a, position_of(a, row), lane);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) s[i] = warp_sum(__fmaf_rn(bf_hi(raw[i]), bf_hi(raw[i]), bf_lo(raw[i]) * bf_lo(raw[i])));
  // The tree of K3's eight warps.
  const float sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  const float inverse = rsqrtf(sum * (1.0f / kKv) + a.eps);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) store_pair<LAYOUT>(a, slot, i * 32 + lane, raw[i], w[i], turn, inverse);
}

__device__ __forceinline__ void ask(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

template <class S, int LAYOUT>
__global__ void __launch_bounds__(kStreamThreads, 1)
    qkvproj_kernel(const __grid_constant__ StreamArgs a, const __grid_constant__ QkvArgs q, char* qkv, uint32_t* counter) {
  extern __shared__ __align__(128) char stages[];
  __shared__ typename S::Shared shared;
  if (blockIdx.x == 0) {
    const int line = int(threadIdx.x) - 32;
    if (line >= 0 && line < kQ * 2 / 128) ask(q.q_weight + line * 128);
    if (line >= 32 && line - 32 < kKv * 2 / 128) ask(q.kv_weight + (line - 32) * 128);
  }
  Keep sink = {qkv, a.rows};
  S::run(a, stages, shared, sink);
  if (blockIdx.x == 0 && threadIdx.x < unsigned(2 * a.rows)) {
    const int64_t position = position_of(q, threadIdx.x >> 1);
    if (position >= 0 && position < q.max_position) ask(q.cos_sin + position * kRope + (threadIdx.x & 1) * 32);
  }
  if (!arrive_last(counter, gridDim.x)) return;
  const int row = int(threadIdx.x) >> 6, lane = threadIdx.x & 31;
  if (row >= a.rows) return;
  if (threadIdx.x & 32)
    finish_key_value<LAYOUT>(q, row, lane);
  else
    finish_query(q, row, lane);
}

template <class S>
int start(const StreamArgs& a, const QkvArgs& q, char* qkv, uint32_t* counter, int layout, int blocks, int pdl, void* stream) {
  const int grid = blocks < a.n / S::kItemRows ? blocks : a.n / S::kItemRows;
  return layout == 0 ? launch_stream(qkvproj_kernel<S, 0>, S::kSharedBytes, grid, pdl, stream, a, q, qkv, counter)
                     : launch_stream(qkvproj_kernel<S, 1>, S::kSharedBytes, grid, pdl, stream, a, q, qkv, counter);
}
}  // namespace

extern "C" int64_t b300k_qkvproj_workspace(int) { return kCounterBytes + kStreamTokens * kRow * 2; }

extern "C" int b300k_qkvproj(const void* x, const void* weight, const void* scales, const void* q_weight, const void* kv_weight,
                             const float* cos_sin, const void* positions, const int32_t* slots, void* out_q, void* out_q8,
                             void* out_q_scale, void* cache, void* workspace, int64_t cache_slots, int rows, float eps,
                             int positions_are_64, int layout, int page_bits, int64_t page_bytes, int64_t max_position,
                             int scale_layout, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kStreamTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !weight || !q_weight || !kv_weight || !cos_sin || !positions || !slots || !out_q || !cache || !workspace || (out_q8 && !out_q_scale))
    return B300K_NULL;
  for (const void* p : {x, weight, q_weight, kv_weight, static_cast<const void*>(cos_sin), static_cast<const void*>(out_q),
                        static_cast<const void*>(out_q8), static_cast<const void*>(cache), static_cast<const void*>(workspace)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  const int64_t used = (int64_t(layout == 0 ? 584 : 528)) << page_bits;
  if (layout < 0 || layout > 1 || page_bits < 0 || page_bits > 12 || page_bytes < used || page_bytes % 16 != 0 ||
      scale_layout < 0 || scale_layout > 1 || blocks < 1 || blocks > 65535)
    return B300K_BAD_LAUNCH;
  char* qkv = static_cast<char*>(workspace) + kCounterBytes;
  const StreamArgs a = {static_cast<const char*>(x), static_cast<const char*>(weight), static_cast<const uint8_t*>(scales), kHidden * 2,
                        rows, kRow, kRow};
  const QkvArgs q = {qkv, static_cast<const char*>(q_weight), static_cast<const char*>(kv_weight), cos_sin, positions, slots,
                     static_cast<char*>(out_q), static_cast<char*>(out_q8), static_cast<char*>(out_q_scale), static_cast<char*>(cache),
                     cache_slots, page_bytes, max_position, rows, positions_are_64, page_bits, scale_layout, eps};
  uint32_t* counter = static_cast<uint32_t*>(workspace);
  if (scales == nullptr) return start<Stream<kBf16, 5, 2, 1, 1>>(a, q, qkv, counter, layout, blocks, pdl, stream);
  return start<Stream<kBlocks, 5, 1, 1, 1>>(a, q, qkv, counter, layout, blocks, pdl, stream);
}
