// K5, the grouped output projection: inverse rope, wo_a, quantisation. One launch.
//
//   o'  = o with the last 64 dims of each head turned back by the row's position (interleaved pairs), rounded to bf16
//   y   [T,groups,1024] = bf16( o' [T,groups,4096] x wo_a [groups,1024,4096] ), fp32 sums
//   y8, scale: E4M3 codes of y with a UE8M0 scale per 32 (what wo_b in MXFP8 reads); y itself when asked
//
// in   o [T,groups*8,512] bf16, T <= 8 ; wo_a bf16, or E4M3 with 32x32 UE8M0 blocks ; cos_sin [P,64] fp32 ; positions [T]
// Bytes: 8 groups 67.1 MB bf16 (15.6 us at 4.3 TB/s), 33.6 MB FP8 (7.8 us); a TP4 shard has 2 groups.
//
// How: common/stream.cuh, x turned back once it is in registers (once a block, while the first 200 KB of W are on their way). An item is 32 rows of W: one scale group of y, so its amax is a warp's own business. 256 items over 132 blocks: 97%.
// A position outside the table gives NaN in the rope dims and so in the whole row of y: it must be seen.
//
// Versions, us at T = 1 / 8, bf16 | FP8 weights, 8 groups, codes out, one H200 (kernels/results):
//   v1 each load of o turned at once: sixteen loads one after the other     20.5 / 24.0 | 16.2 / 17.6   run 12
//   v2 all loads first (used)                                               17.9 / 19.8 | 14.9 / 16.6   run 13
#include "../common/api.h"
#include "../common/stream.cuh"

namespace {
using namespace b300k;
constexpr int kGroupK = 4096, kGroupRows = 1024, kHead = 512, kRope = 64;

struct Turn {
  const float* cos_sin;
  const void* positions;
  char *y, *y8, *y_scale;
  int64_t max_position;
  int rows, n, positions_are_64, scale_layout;
  int64_t position;
  uint2 kept;  // this lane's four values of the item's first unit

  __device__ __forceinline__ void prepare(int token) {
    position = positions_are_64 ? __ldcg(static_cast<const long long*>(positions) + token)
                                : __ldcg(static_cast<const int*>(positions) + token);
  }
  __device__ __forceinline__ void change(int token, int column, uint32_t (&words)[4]) {
    const int at = (column & (kHead - 1)) - (kHead - kRope);
    if (at < 0) return;
    const float nan = __uint_as_float(0x7fc00000u);
    float4 turn[2] = {make_float4(nan, nan, nan, nan), make_float4(nan, nan, nan, nan)};
    if (position >= 0 && position < max_position) {
      const float4* from = reinterpret_cast<const float4*>(cos_sin + position * kRope + at);
      turn[0] = __ldg(from), turn[1] = __ldg(from + 1);
    }
    const float cs[8] = {turn[0].x, turn[0].y, turn[0].z, turn[0].w, turn[1].x, turn[1].y, turn[1].z, turn[1].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float c = cs[2 * i], s = cs[2 * i + 1], real = bf_lo(words[i]), imaginary = bf_hi(words[i]);
      words[i] = bf_pack(__fmaf_rn(real, c, __fmul_rn(imaginary, s)), __fmaf_rn(imaginary, c, -__fmul_rn(real, s)));
    }
  }

  __device__ __forceinline__ void unit(int index, int row, int lane, float4 sum) {
    const uint2 four = make_uint2(bf_pack(sum.x, sum.y), bf_pack(sum.z, sum.w));
    const int token = lane >> 2, column = row + (lane & 3) * 4;
    if (y != nullptr && token < rows) *reinterpret_cast<uint2*>(y + (int64_t(token) * n + column) * 2) = four;
    if (index == 0) kept = four;
    if (index == 0 || y8 == nullptr) return;
    const uint32_t words[4] = {kept.x, kept.y, four.x, four.y};
    float amax = 0.0f;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float lo = fabsf(bf_lo(words[i])), hi = fabsf(bf_hi(words[i])), infinity = __uint_as_float(0x7f800000u);
      amax = fmaxf(amax, fmaxf(lo, hi));
      finite = finite && lo < infinity && hi < infinity;
    }
#pragma unroll
    for (int mask = 1; mask < 4; mask <<= 1) {
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
      finite = __shfl_xor_sync(0xffffffffu, int(finite), mask) && finite;
    }
    if (token >= rows) return;
    const Ue8m0 scale = ue8m0_of(amax, finite);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t lo = e4m3x2(bf_lo(words[2 * i]) * scale.inverse, bf_hi(words[2 * i]) * scale.inverse);
      const uint32_t hi = e4m3x2(bf_lo(words[2 * i + 1]) * scale.inverse, bf_hi(words[2 * i + 1]) * scale.inverse);
      *reinterpret_cast<uint32_t*>(y8 + int64_t(token) * n + column - (1 - i) * kUnitRows) = lo | hi << 16;
    }
    if ((lane & 3) == 0) y_scale[scale_offset(scale_layout, token, row / 32, n / 32)] = char(scale.byte);
  }
};

template <class S>
__global__ void __launch_bounds__(kStreamThreads, 1) oproj_kernel(const __grid_constant__ StreamArgs a, const __grid_constant__ Turn turn) {
  extern __shared__ __align__(128) char stages[];
  __shared__ typename S::Shared shared;
  Turn sink = turn;
  S::run(a, stages, shared, sink);
}

template <class S>
int start(const StreamArgs& a, const Turn& turn, int blocks, int pdl, void* stream) {
  const int items = a.n / S::kItemRows;
  return launch_stream(oproj_kernel<S>, S::kSharedBytes, blocks < items ? blocks : items, pdl, stream, a, turn);
}
}  // namespace

extern "C" int b300k_oproj(const void* o, const void* weight, const void* scales, const float* cos_sin, const void* positions, void* out_y,
                           void* out_y8, void* out_scale, int rows, int groups, int positions_are_64, int64_t max_position,
                           int scale_layout, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kStreamTokens) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!o || !weight || !cos_sin || !positions || (!out_y && !out_y8) || (out_y8 && !out_scale)) return B300K_NULL;
  for (const void* p : {o, weight, static_cast<const void*>(cos_sin), static_cast<const void*>(out_y), static_cast<const void*>(out_y8)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (groups < 1 || groups > 64 || scale_layout < 0 || scale_layout > 1 || blocks < 1 || blocks > 65535) return B300K_BAD_LAUNCH;
  const int n = groups * kGroupRows;
  const StreamArgs a = {static_cast<const char*>(o), static_cast<const char*>(weight), static_cast<const uint8_t*>(scales),
                        int64_t(groups) * kGroupK * 2, rows, n, kGroupRows};
  const Turn turn = {cos_sin, positions, static_cast<char*>(out_y), static_cast<char*>(out_y8), static_cast<char*>(out_scale),
                     max_position, rows, n, positions_are_64, scale_layout, 0, {0, 0}};
  if (scales == nullptr) return start<Stream<kBf16, 4, 2, 1, 2>>(a, turn, blocks, pdl, stream);
  return start<Stream<kBlocks, 4, 2, 1, 2>>(a, turn, blocks, pdl, stream);
}
