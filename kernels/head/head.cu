// K6h, the language model head with its argmax: logits = bf16(x W^T), ids = the first largest. One launch.
//
// in   x [T,5120] bf16, T <= 8 ; W [V,5120]: bf16, or E4M3 with a UE8M0 scale per 32 columns of a row (MXFP8) ; V % 16 == 0
// out  ids [T] int32, values [T] fp32 (the bf16 logit of that id) ; logits [T,V] bf16 when asked (a sampler reads them)
// Ties go to the lowest id; a NaN is larger than all else, so that it is seen (torch.argmax does the same).
// Bytes: V = 129280: 1324 MB bf16 (308 us at 4.3 TB/s; large pure reads reach 4.68: 283), 683 MB MXFP8 (159; 146).
//
// How: common/stream.cuh, 8080 units of 16 rows. Each summing lane keeps its best as one 64-bit key (order of the value, then the
// inverted id), whose maximum does not depend on the order in which it is taken; one key a block and row goes to the workspace,
// and the block that arrives last takes the maximum of those.
//
// Versions, us at T = 1 / 8, bf16 | MXFP8, one H200 (kernels/results):
//   v1 8 rows a unit, the block meets at each                               296 / 298 | 202 / 208   run 9
//   v2 no meeting, copies of 2.5 to 5 KB                                    314 / 315 | 177 / 193   run 10
//   v3 16 rows, f16 by conversion, copies of 2 KB for bf16                  313 / 311 | 157 / 162   run 12
//   v4 copies of 5 KB for bf16 (used)                                       299 / 300 | 157 / 163   run 13
#include "../common/api.h"
#include "../common/stream.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kMaxBlocks = 1024, kCounterBytes = 128;

// Unsigned order equal to the order of floats, -0 equal to +0, NaN above infinity.
__device__ __forceinline__ uint32_t order_key(float v) {
  if (!(v == v)) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  if (key == 0xffffffffu) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

struct Best {
  char* logits;
  int rows, n;
  uint64_t best;

  __device__ void prepare(int) {}
  __device__ void change(int, int, uint32_t (&)[4]) {}
  __device__ __forceinline__ void unit(int, int row, int lane, float4 sum) {
    const int token = lane >> 2, first = row + (lane & 3) * 4;
    const uint2 four = make_uint2(bf_pack(sum.x, sum.y), bf_pack(sum.z, sum.w));
    if (logits != nullptr && token < rows) *reinterpret_cast<uint2*>(logits + (int64_t(token) * n + first) * 2) = four;
    const float value[4] = {bf_lo(four.x), bf_hi(four.x), bf_lo(four.y), bf_hi(four.y)};
#pragma unroll
    for (int i = 0; i < 4; ++i) best = larger(best, uint64_t(order_key(value[i])) << 32 | (0xffffffffu - uint32_t(first + i)));
  }
};

template <class S>
__global__ void __launch_bounds__(kStreamThreads, 1)
    head_kernel(const __grid_constant__ StreamArgs a, char* logits, int32_t* ids, float* values, uint64_t* keys, uint32_t* counter) {
  extern __shared__ __align__(128) char stages[];
  __shared__ typename S::Shared shared;
  __shared__ uint64_t best[kStreamWarps][kStreamTokens];
  Best sink = {logits, a.rows, a.n, 0};
  S::run(a, stages, shared, sink);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  uint64_t mine = sink.best;
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) mine = larger(mine, __shfl_xor_sync(0xffffffffu, mine, mask));
  if ((lane & 3) == 0) best[warp][lane >> 2] = mine;
  __syncthreads();
  if (threadIdx.x < kStreamTokens) {
    uint64_t most = best[0][threadIdx.x];
    for (int i = 1; i < kStreamWarps; ++i) most = larger(most, best[i][threadIdx.x]);
    keys[blockIdx.x * kStreamTokens + threadIdx.x] = most;
  }
  if (!arrive_last(counter, gridDim.x)) return;
  if (warp >= a.rows) return;
  uint64_t most = 0;
  for (int block = lane; block < int(gridDim.x); block += 32)
    most = larger(most, __ldcg(reinterpret_cast<unsigned long long*>(keys) + block * kStreamTokens + warp));
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) most = larger(most, __shfl_xor_sync(0xffffffffu, most, mask));
  if (lane == 0) {
    ids[warp] = int(0xffffffffu - uint32_t(most));
    values[warp] = value_of(uint32_t(most >> 32));
  }
}

template <class S>
int start(const StreamArgs& a, char* logits, int32_t* ids, float* values, void* workspace, int blocks, int pdl, void* stream) {
  const int items = a.n / S::kItemRows;
  uint64_t* keys = reinterpret_cast<uint64_t*>(static_cast<char*>(workspace) + kCounterBytes);
  return launch_stream(head_kernel<S>, S::kSharedBytes, blocks < items ? blocks : items, pdl, stream, a, logits, ids, values, keys,
                       static_cast<uint32_t*>(workspace));
}
}  // namespace

extern "C" int64_t b300k_head_workspace(int) { return kCounterBytes + int64_t(kMaxBlocks) * kStreamTokens * 8; }

extern "C" int b300k_head(const void* x, const void* weight, const void* scales, int32_t* out_ids, float* out_values, void* out_logits,
                          void* workspace, int rows, int vocabulary, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kStreamTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !weight || !out_ids || !out_values || !workspace) return B300K_NULL;
  for (const void* p : {x, weight, static_cast<const void*>(out_logits), static_cast<const void*>(workspace)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > kMaxBlocks || vocabulary < 16 || vocabulary % 16 != 0) return B300K_BAD_LAUNCH;
  const StreamArgs a = {static_cast<const char*>(x), static_cast<const char*>(weight), static_cast<const uint8_t*>(scales), kHidden * 2,
                        rows, vocabulary, vocabulary};
  char* logits = static_cast<char*>(out_logits);
  if (scales == nullptr) return start<Stream<kBf16, 5, 2, 1, 1>>(a, logits, out_ids, out_values, workspace, blocks, pdl, stream);
  return start<Stream<kRows, 5, 2, 1, 1>>(a, logits, out_ids, out_values, workspace, blocks, pdl, stream);
}
