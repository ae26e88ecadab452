// K3, after the wqkv_a projection: q norm and quantisation beside kv norm, rope and paged insert. One launch.
//
//   q  = bf16( (q * rsqrt(mean(q^2)+eps)) * wq ) [1280]          and its E4M3 codes with UE8M0 scales per 32 (when asked)
//   kv = (kv * rsqrt(mean(kv^2)+eps)) * wkv [512], interleaved-pair rope on the last 64, then into the paged cache:
//   layout 0 "v4"  584 B a token: 448 E4M3 (scale per 64: 2^ceil(log2(max(amax,1e-4)/448))), 64 bf16 (rope), 7 scales + 1 pad.
//                  The norm stays fp32 until it is quantised.
//   layout 1 "v41" 528 B a token: 512 E4M3, 16 scales (per 32: 2^max(ceil(log2(amax/448)), -13)); bf16 after the norm and
//                  again after the rope, then quantised.
//   A page is page_size data rows, then page_size scale rows, then padding: page_bytes apart.
//
// in   qkv [T,1792] bf16 (q | kv) ; weights bf16 ; cos_sin [P,64] fp32 (cos, sin interleaved) ; positions [T] int32/int64 ;
//      slots [T] int32: below 0 = no cache slot for this row ; out q [T,1280] bf16, q8, q_scale, cache bytes
// Bytes at T=8: under 0.1 MB: the launch is the floor.
//
// How: block 2r is the query of row r, block 2r+1 its kv. The kv sum of squares has the reduction tree of SGLang's kernel
// (pairs, warp butterfly 16..1, then 4, 2, 1 over the warps), so the cache bytes can be compared bit for bit.
// Bad values stay visible: a NaN or an infinity gives scale byte 255 and NaN codes; a position outside the table gives NaN in
// the rope dims; a slot at or past cache_slots is not written.
//
// Versions, us at T = 1 / 6 / 8 with fp8, v4 layout, one H200, 2026-11-29 (kernels/results run 7):
//   this one                                                                1.89 / 1.98 / 1.97
//   with dependent launch (used)                                            1.34 / 1.40 / 1.42
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kQ = 1280, kKv = 512, kRow = kQ + kKv, kRope = 64, kThreads = 256, kQThreads = kQ / 8;
constexpr int kMaxRows = 4096;

struct Args {
  const char *qkv, *q_weight, *kv_weight;
  const float* cos_sin;
  const void* positions;
  const int32_t* slots;
  char *out_q, *out_q8, *out_q_scale, *cache;
  int64_t cache_slots, page_bytes, max_position;
  int rows, positions_are_64, page_bits, scale_layout;
  float eps;
};

__device__ void query(const Args& a, int row, const uint4& w_raw, float* shared) {
  const int tid = threadIdx.x;
  const bool mine = tid < kQThreads;
  uint4 raw = make_uint4(0, 0, 0, 0);
  if (mine) raw = load_act(a.qkv + (int64_t(row) * kRow + tid * 8) * 2);
  float v[8], w[8], square = 0.0f;
  unpack8(raw, v);
#pragma unroll
  for (int e = 0; e < 8; ++e) square = __fmaf_rn(v[e], v[e], square);
  square = warp_sum(square);
  if ((tid & 31) == 0) shared[tid >> 5] = square;
  __syncthreads();
  if (!mine) return;
  const float sum = ((shared[0] + shared[1]) + (shared[2] + shared[3])) + shared[4];
  const float inverse = rsqrtf(sum * (1.0f / kQ) + a.eps);
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

template <int LAYOUT>
__device__ void key_value(const Args& a, int row, uint32_t w_raw, float* shared) {
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const uint32_t raw = __ldcg(reinterpret_cast<const unsigned*>(a.qkv + (int64_t(row) * kRow + kQ) * 2) + tid);
  const int64_t position = a.positions_are_64 ? __ldcg(static_cast<const long long*>(a.positions) + row)
                                              : __ldcg(static_cast<const int*>(a.positions) + row);
  const int slot = __ldcg(a.slots + row);
  const float nan = __uint_as_float(0x7fc00000u);
  float2 turn = make_float2(nan, nan);
  if (warp == 7 && position >= 0 && position < a.max_position)
    turn = *reinterpret_cast<const float2*>(a.cos_sin + position * kRope + lane * 2);

  const float v0 = bf_lo(raw), v1 = bf_hi(raw);
  const float square = warp_sum(__fmaf_rn(v1, v1, v0 * v0));
  if (lane == 0) shared[warp] = square;
  __syncthreads();
  float sum = shared[lane & 7];
#pragma unroll
  for (int mask = 4; mask; mask >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  const float inverse = rsqrtf(sum * (1.0f / kKv) + a.eps);
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

template <int LAYOUT>
__global__ void __launch_bounds__(kThreads) qkv_kernel(const __grid_constant__ Args a) {
  __shared__ float shared[8];
  const int tid = threadIdx.x;
  pdl_release();
  uint4 q_weight = make_uint4(0, 0, 0, 0);
  if (tid < kQThreads) q_weight = load_weight(a.q_weight + tid * 16);
  const uint32_t kv_weight = reinterpret_cast<const uint32_t*>(a.kv_weight)[tid];
  pdl_wait();
  for (int item = blockIdx.x; item < 2 * a.rows; item += gridDim.x) {
    if (item & 1)
      key_value<LAYOUT>(a, item >> 1, kv_weight, shared);
    else
      query(a, item >> 1, q_weight, shared);
    if (item + gridDim.x < 2 * a.rows) __syncthreads();
  }
}
}  // namespace

extern "C" int b300k_qkv(const void* qkv, const void* q_weight, const void* kv_weight, const float* cos_sin,
                         const void* positions, const int32_t* slots, void* out_q, void* out_q8, void* out_q_scale, void* cache,
                         int64_t cache_slots, int rows, float eps, int positions_are_64, int layout, int page_bits,
                         int64_t page_bytes, int64_t max_position, int scale_layout, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!qkv || !q_weight || !kv_weight || !cos_sin || !positions || !slots || !out_q || !cache || (out_q8 && !out_q_scale)) return B300K_NULL;
  for (const void* p : {qkv, q_weight, kv_weight, static_cast<const void*>(cos_sin), static_cast<const void*>(out_q),
                        static_cast<const void*>(out_q8), static_cast<const void*>(cache)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  const int64_t used = (int64_t(layout == 0 ? 584 : 528)) << page_bits;
  if (layout < 0 || layout > 1 || page_bits < 0 || page_bits > 12 || page_bytes < used || page_bytes % 16 != 0 ||
      scale_layout < 0 || scale_layout > 1 || blocks < 1 || blocks > 65535)
    return B300K_BAD_LAUNCH;
  const Args a = {static_cast<const char*>(qkv), static_cast<const char*>(q_weight), static_cast<const char*>(kv_weight), cos_sin,
                  positions, slots, static_cast<char*>(out_q), static_cast<char*>(out_q8), static_cast<char*>(out_q_scale),
                  static_cast<char*>(cache), cache_slots, page_bytes, max_position, rows, positions_are_64, page_bits, scale_layout, eps};
  const int grid = blocks < 2 * rows ? blocks : 2 * rows;
  return layout == 0 ? launch(qkv_kernel<0>, grid, kThreads, 1, pdl, stream, 0, a) : launch(qkv_kernel<1>, grid, kThreads, 1, pdl, stream, 0, a);
}
