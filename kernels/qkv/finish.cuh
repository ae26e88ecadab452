// What K3 and K3b do with a row of qkv: q norm and quantisation, kv norm, rope and paged insert. Threads are named by `tid`, so that
// a block of 256 (K3) and a warp that takes eight turns (K3b) give the same bits.
#pragma once
#include "../common/device.cuh"

namespace b300k {
constexpr int kQ = 1280, kKv = 512, kRow = kQ + kKv, kRope = 64, kQThreads = kQ / 8;

struct QkvArgs {
  const char *qkv, *q_weight, *kv_weight;
  const float* cos_sin;
  const void* positions;
  const int32_t* slots;
  char *out_q, *out_q8, *out_q_scale, *cache;
  int64_t cache_slots, page_bytes, max_position;
  int rows, positions_are_64, page_bits, scale_layout;
  float eps;
};

__device__ __forceinline__ float square_of(const float (&v)[8]) {
  float square = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) square = __fmaf_rn(v[e], v[e], square);
  return square;
}
// Eight columns of q from tid*8; `inverse` is the row's 1/rms. By whole warps.
__device__ __forceinline__ void store_query(const QkvArgs& a, int row, int tid, const float (&v)[8], const uint4& w_raw, float inverse) {
  float w[8];
  unpack8(w_raw, w);
  uint32_t packed[4];
#pragma unroll
  for (int e = 0; e < 8; e += 2)
    packed[e / 2] = bf_pack(__fmul_rn(__fmul_rn(v[e], inverse), w[e]), __fmul_rn(__fmul_rn(v[e + 1], inverse), w[e + 1]));
  const uint4 out = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  *reinterpret_cast<uint4*>(a.out_q + (int64_t(row) * kQ + tid * 8) * 2) = out;
  if (a.out_q8 == nullptr) return;
  float x[8], amax = 0.0f;
  bool finite = true;
  unpack8(out, x);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
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
  for (int e = 0; e < 8; e += 2) codes[e / 2] = e4m3x2(x[e] * scale.inverse, x[e + 1] * scale.inverse);
  *reinterpret_cast<uint2*>(a.out_q8 + int64_t(row) * kQ + tid * 8) = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
  if ((tid & 3) == 0) a.out_q_scale[scale_offset(a.scale_layout, row, tid / 4, kQ / 32)] = char(scale.byte);
}

__device__ __forceinline__ int64_t position_of(const QkvArgs& a, int row) {
  return a.positions_are_64 ? __ldcg(static_cast<const long long*>(a.positions) + row) : __ldcg(static_cast<const int*>(a.positions) + row);
}
// cos and sin of the pair tid%32 of the rope dims; NaN outside the table.
__device__ __forceinline__ float2 turn_of(const QkvArgs& a, int64_t position, int tid) {
  const float nan = __uint_as_float(0x7fc00000u);
  if (position < 0 || position >= a.max_position) return make_float2(nan, nan);
  return *reinterpret_cast<const float2*>(a.cos_sin + position * kRope + (tid & 31) * 2);
}
// Columns 2*tid, 2*tid+1 of kv. By whole warps; the eighth holds the rope dims.
template <int LAYOUT>
__device__ __forceinline__ void store_pair(const QkvArgs& a, int slot, int tid, uint32_t raw, uint32_t w_raw, float2 turn, float inverse) {
  const int lane = tid & 31, warp = tid >> 5;
  const float nan = __uint_as_float(0x7fc00000u), v0 = bf_lo(raw), v1 = bf_hi(raw);
  float x = __fmul_rn(__fmul_rn(v0, inverse), bf_lo(w_raw)), y = __fmul_rn(__fmul_rn(v1, inverse), bf_hi(w_raw));

  if (LAYOUT == 1) {
    x = __bfloat162float(__float2bfloat16_rn(x));
    y = __bfloat162float(__float2bfloat16_rn(y));
  }
  if (warp == 7) {
    const float real = __fmaf_rn(x, turn.x, -__fmul_rn(y, turn.y)), imaginary = __fmaf_rn(x, turn.y, __fmul_rn(y, turn.x));
    x = real, y = imaginary;
    if (LAYOUT == 1) {
      x = __bfloat162float(__float2bfloat16_rn(x));
      y = __bfloat162float(__float2bfloat16_rn(y));
    }
  }
  if (slot < 0 || slot >= a.cache_slots) return;  // uniform over the block
  const int in_page = slot & ((1 << a.page_bits) - 1);
  char* page = a.cache + int64_t(slot >> a.page_bits) * a.page_bytes;
  constexpr int kDataBytes = LAYOUT == 0 ? 576 : 512, kScaleBytes = LAYOUT == 0 ? 8 : 16, kGroupLanes = LAYOUT == 0 ? 32 : 16;
  char* data = page + int64_t(in_page) * kDataBytes;
  char* scales = page + (int64_t(kDataBytes) << a.page_bits) + int64_t(in_page) * kScaleBytes;
  if (LAYOUT == 0 && warp == 7) {
    reinterpret_cast<uint32_t*>(data + 448)[lane] = bf_pack(x, y);
    return;
  }
  float amax = fmaxf(fabsf(x), fabsf(y));
  const float infinity = __uint_as_float(0x7f800000u);
  bool finite = fabsf(x) < infinity && fabsf(y) < infinity;
#pragma unroll
  for (int mask = kGroupLanes / 2; mask; mask >>= 1) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
    finite = __shfl_xor_sync(0xffffffffu, int(finite), mask) && finite;
  }
  uint32_t byte;
  if (LAYOUT == 0) {
    const uint32_t bits = __float_as_uint(__fdiv_rn(fmaxf(1e-4f, amax), 448.0f));
    byte = (bits >> 23) + ((bits & 0x7fffffu) != 0u);
  } else {  // 448 = 1.75 * 2^8: the quotient's exponent is amax's less 8, one more when its mantissa is over 1.75
    const uint32_t bits = __float_as_uint(amax);
    byte = max(int(bits >> 23) - 8 + int((bits & 0x7fffffu) > 0x600000u), 114);
  }
  const float scale = finite ? __uint_as_float((254u - byte) << 23) : nan;
  reinterpret_cast<uint16_t*>(data)[tid] = uint16_t(e4m3x2(x * scale, y * scale));
  if ((lane & (kGroupLanes - 1)) == 0) scales[tid / kGroupLanes] = char(finite ? byte : 255u);
}

}  // namespace b300k
