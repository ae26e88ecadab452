// The matched-draw sampler: temperature, top-k, top-p and a draw whose randomness belongs to the request and the position. One launch.
//
//   z_i   = (l_i - max l) * inverse_temperature             fp32, a product and a difference, no fused operation anywhere here
//   w_i   = floor(2^40 * exp(z_i))                          an integer: sums of them do not depend on their order
//   kept  : the top_k largest logits (all that tie with the last), then of those the fewest, largest first, whose w reach
//           top_p of the sum (again with all ties). top_k 0 and top_p 1 switch them off.
//   id    = argmax over kept of z_i + g_i, ties to the lowest id; g_i = -log(-log(u_i)) (Gumbel-max)
//   u_i   from Philox4x32-10, key = seed ^ tag, counter = (i/4, request nonce, position, draft step), word i%4
//   inverse_temperature 0: the first largest logit.
// The same noise meets the same token in every distribution of that request, position and step: a draft's draw and the target's
// agree as often as their distributions allow. A row whose largest logit is not finite (NaN, infinity) gives id -1.
//
// in   logits [T,V] bf16, T <= 64, V % 4 == 0 ; inverse_temperature, top_p [T] fp32 ; top_k, position, step [T] int32 ; nonce [T] int32
// out  ids [T] int32
//
// How: a cluster of 8 blocks a row; the logits are read from L2 once for each of: the maximum, the histogram of the high byte
// of their 16-bit order (top-k or top-p only), of the low byte within the bin found (once for k, once for p), the draw. exp and
// log are polynomials of fp32 products, sums and one IEEE division, so draw/reference.py has the same bits. What crosses blocks are
// integers and maxima. u has 23 bits: what is less likely than 2^-24 a token is not drawn.
//
// Versions, us at T = 1 / 6 / 8, V = 129280, one H200 (kernels/results run 13): this one, temperature alone 16.7 / 19.4 / 26.2; with top-p 174 / 207 / 263,
// with top-k and top-p 166 / 186 / 248: most logits fall into a few bins of the histogram, whose atomics then queue. torch's own steps
// with top-p: 132 / 363 / 379. Counting in registers a bin at a time, or by warp-level matching, is what to try next.
#include <cooperative_groups.h>

#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
namespace cg = cooperative_groups;
constexpr int kRanks = 8, kThreads = 512, kWarps = kThreads / 32, kBins = 256, kMaxRows = 64;

struct Args {
  const char* logits;
  const float *inverse_temperature, *top_p;
  const int32_t *top_k, *nonce, *position, *step;
  int32_t* ids;
  int vocabulary;
  uint32_t key0, key1;
};

struct Histogram {
  uint32_t count[kBins];
  unsigned long long weight[kBins];
};
struct Choice {
  uint32_t bin;
  uint32_t count_above;
  unsigned long long weight_above, weight_in;
};

// Order of a bf16 as 16 bits: -0 equal to +0, NaN above infinity.
__device__ __forceinline__ uint32_t order16(uint32_t bits) {
  if ((bits & 0x7fffu) > 0x7f80u) return 0xffffu;
  if (bits == 0x8000u) bits = 0;
  return bits & 0x8000u ? 0xffffu & ~bits : bits | 0x8000u;
}
__device__ __forceinline__ float value16(uint32_t key) { return __uint_as_float((key & 0x8000u ? key & 0x7fffu : 0xffffu & ~key) << 16); }
__device__ __forceinline__ uint32_t order32(float v) {
  const uint32_t bits = __float_as_uint(__fadd_rn(v, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// floor(2^40 * exp(z)), z <= 0.
__device__ __forceinline__ unsigned long long weight_of(float z) {
  const float y = __fmul_rn(z, 1.44269504f);
  if (!(y > -42.0f)) return 0;
  const float n = rintf(y), f = __fadd_rn(y, -n);
  float p = 1.53533734e-4f;
  p = __fadd_rn(__fmul_rn(p, f), 1.33988744e-3f);
  p = __fadd_rn(__fmul_rn(p, f), 9.61843552e-3f);
  p = __fadd_rn(__fmul_rn(p, f), 5.55033021e-2f);
  p = __fadd_rn(__fmul_rn(p, f), 2.40226507e-1f);
  p = __fadd_rn(__fmul_rn(p, f), 6.93147182e-1f);
  p = __fadd_rn(__fmul_rn(p, f), 1.0f);
  const unsigned long long scaled = static_cast<unsigned long long>(__fmul_rn(p, 1073741824.0f)) << 10;  // 2^40 * 2^f
  return scaled >> -int(n);
}
// Natural logarithm of a positive normal number.
__device__ __forceinline__ float log_of(float v) {
  uint32_t bits = __float_as_uint(v);
  int exponent = int(bits >> 23) - 127;
  float m = __uint_as_float((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421354f) m = __fmul_rn(m, 0.5f), ++exponent;
  const float s = __fdiv_rn(__fadd_rn(m, -1.0f), __fadd_rn(m, 1.0f)), q = __fmul_rn(s, s);
  float p = 1.11111111e-1f;
  p = __fadd_rn(__fmul_rn(p, q), 1.42857149e-1f);
  p = __fadd_rn(__fmul_rn(p, q), 2.00000003e-1f);
  p = __fadd_rn(__fmul_rn(p, q), 3.33333343e-1f);
  p = __fadd_rn(__fmul_rn(p, q), 1.0f);
  return __fadd_rn(__fmul_rn(float(exponent), 6.93147182e-1f), __fmul_rn(__fmul_rn(2.0f, s), p));
}
__device__ __forceinline__ float gumbel(uint32_t random) {
  const float u = __fmul_rn(__fadd_rn(float(random >> 9), 0.5f), 1.1920929e-7f);
  return -log_of(-log_of(u));
}
__device__ __forceinline__ uint4 philox(uint4 c, uint32_t key0, uint32_t key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xd2511f53u, c.x), low0 = 0xd2511f53u * c.x;
    const uint32_t high1 = __umulhi(0xcd9e8d57u, c.z), low1 = 0xcd9e8d57u * c.z;
    c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
    key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
  }
  return c;
}

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
// The largest over the cluster; every thread gets it. `slot` is not used again.
__device__ unsigned long long cluster_largest(unsigned long long v, unsigned long long* warps, unsigned long long* slot) {
  cg::cluster_group cluster = cg::this_cluster();
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) v = larger(v, __shfl_xor_sync(0xffffffffu, v, mask));
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWarps; ++i) v = larger(v, warps[i]);
    *slot = v;
  }
  cluster.sync();
  v = 0;
  for (int rank = 0; rank < kRanks; ++rank) v = larger(v, *cluster.map_shared_rank(slot, rank));
  return v;
}
// The bin, from the largest down, in which the count (or the weight) reaches `target`; all threads, after the histograms of the
// cluster are written. Every block finds the same.
__device__ Choice reach(Histogram* mine, Histogram* total, Choice* choice, bool by_weight, unsigned long long target) {
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int bin = threadIdx.x;
  if (bin < kBins) {
    uint32_t count = 0;
    unsigned long long weight = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Histogram* other = cluster.map_shared_rank(mine, rank);
      count += other->count[bin], weight += other->weight[bin];
    }
    total->count[bin] = count, total->weight[bin] = weight;
  }
  __syncthreads();
  if (bin < kBins) {
    Choice found = {uint32_t(bin), 0, 0, total->weight[bin]};
    for (int i = bin + 1; i < kBins; ++i) found.count_above += total->count[i], found.weight_above += total->weight[i];
    const unsigned long long above = by_weight ? found.weight_above : found.count_above;
    const unsigned long long in = by_weight ? found.weight_in : total->count[bin];
    if (above < target && target <= above + in) *choice = found;
  }
  __syncthreads();
  const Choice found = *choice;
  __syncthreads();
  return found;
}

__global__ void __cluster_dims__(kRanks, 1, 1) __launch_bounds__(kThreads) draw_kernel(const __grid_constant__ Args a) {
  __shared__ Histogram high, low_k, low_p, total;
  __shared__ Choice choice;
  __shared__ unsigned long long warps[kWarps], slots[3];
  cg::cluster_group cluster = cg::this_cluster();
  const int row = blockIdx.x / kRanks, first = cluster.block_rank() * kThreads + threadIdx.x, quads = a.vocabulary / 4;
  for (int i = threadIdx.x; i < kBins; i += kThreads) {
    high.count[i] = low_k.count[i] = low_p.count[i] = 0;
    high.weight[i] = low_k.weight[i] = low_p.weight[i] = 0;
  }
  __syncthreads();
  pdl_release();
  pdl_wait();
  const char* logits = a.logits + int64_t(row) * a.vocabulary * 2;
  const float inverse_temperature = a.inverse_temperature[row], top_p = a.top_p[row];
  const int top_k = a.top_k[row];
  auto each = [&](auto&& use) {
    for (int quad = first; quad < quads; quad += kRanks * kThreads) {
      const uint2 v = load_act2(logits + int64_t(quad) * 8);
      const uint32_t bits[4] = {v.x & 0xffffu, v.x >> 16, v.y & 0xffffu, v.y >> 16};
      use(quad, bits);
    }
  };
  // The first largest: also the answer where nothing is drawn.
  unsigned long long best = 0;
  each([&](int quad, const uint32_t(&bits)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) best = larger(best, (unsigned long long)(order16(bits[i])) << 32 | (0xffffffffu - uint32_t(quad * 4 + i)));
  });
  best = cluster_largest(best, warps, &slots[0]);
  const uint32_t top_key = uint32_t(best >> 32);
  const float largest = value16(top_key);
  const bool finite = top_key > 0x007fu && top_key < 0xff80u;  // neither NaN nor an infinity of either sign
  int id = finite ? int(0xffffffffu - uint32_t(best)) : -1;
  if (finite && inverse_temperature != 0.0f) {  // the same in every thread of the cluster
    auto z_of = [&](uint32_t bits) { return __fmul_rn(__fadd_rn(__uint_as_float(bits << 16), -largest), inverse_temperature); };
    auto add = [&](Histogram& into, uint32_t bin, uint32_t bits) {
      atomicAdd(&into.count[bin], 1u);
      const unsigned long long weight = weight_of(z_of(bits));
      if (weight != 0) atomicAdd(&into.weight[bin], weight);
    };
    uint32_t least = 0;
    const bool by_count = top_k > 0 && top_k < a.vocabulary, by_weight = top_p < 1.0f;
    if (by_count || by_weight) {
      each([&](int, const uint32_t(&bits)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) add(high, order16(bits[i]) >> 8, bits[i]);
      });
      const Choice of_count = reach(&high, &total, &choice, false, by_count ? top_k : a.vocabulary);
      unsigned long long sum = of_count.weight_above + of_count.weight_in;
      if (by_count) {
        each([&](int, const uint32_t(&bits)[4]) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (order16(bits[i]) >> 8 == of_count.bin) add(low_k, order16(bits[i]) & 255u, bits[i]);
        });
        const Choice low = reach(&low_k, &total, &choice, false, top_k - of_count.count_above);
        least = of_count.bin << 8 | low.bin;
        sum = of_count.weight_above + low.weight_above + low.weight_in;
      }
      if (by_weight) {
        const double share = __dmul_rn(double(top_p), __ull2double_rn(sum));
        const unsigned long long target = share >= 1.0 ? (unsigned long long)(share) : 1ull;
        const Choice of_weight = reach(&high, &total, &choice, true, target);
        each([&](int, const uint32_t(&bits)[4]) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (order16(bits[i]) >> 8 == of_weight.bin) add(low_p, order16(bits[i]) & 255u, bits[i]);
        });
        const Choice low = reach(&low_p, &total, &choice, true, target - of_weight.weight_above);
        least = max(least, of_weight.bin << 8 | low.bin);
      }
    }
    best = 0;
    const uint32_t nonce = uint32_t(a.nonce[row]), position = uint32_t(a.position[row]), step = uint32_t(a.step[row]);
    each([&](int quad, const uint32_t(&bits)[4]) {
      bool any = false;
#pragma unroll
      for (int i = 0; i < 4; ++i) any = any || order16(bits[i]) >= least;
      if (!any) return;
      const uint4 random = philox(make_uint4(uint32_t(quad), nonce, position, step), a.key0, a.key1);
      const uint32_t words[4] = {random.x, random.y, random.z, random.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (order16(bits[i]) >= least)
          best = larger(best, (unsigned long long)(order32(__fadd_rn(z_of(bits[i]), gumbel(words[i])))) << 32 | (0xffffffffu - uint32_t(quad * 4 + i)));
    });
    best = cluster_largest(best, warps, &slots[1]);
    id = int(0xffffffffu - uint32_t(best));
  }
  if (cluster.block_rank() == 0 && threadIdx.x == 0) a.ids[row] = id;
  cluster.sync();  // no block leaves while another reads its shared memory
}
}  // namespace

extern "C" int b300k_draw(const void* logits, const float* inverse_temperature, const float* top_p, const int32_t* top_k, const int32_t* nonce,
                          const int32_t* position, const int32_t* step, int32_t* out_ids, int rows, int vocabulary, uint64_t seed,
                          uint64_t tag, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!logits || !inverse_temperature || !top_p || !top_k || !nonce || !position || !step || !out_ids) return B300K_NULL;
  if (!aligned16(logits)) return B300K_MISALIGNED;
  if (vocabulary < 4 || vocabulary % 4 != 0) return B300K_BAD_LAUNCH;
  const uint64_t key = seed ^ tag;
  const Args a = {static_cast<const char*>(logits), inverse_temperature, top_p, top_k, nonce, position, step, out_ids, vocabulary,
                  uint32_t(key), uint32_t(key >> 32)};
  return launch(draw_kernel, rows * kRanks, kThreads, 1, pdl, stream, 0, a);
}
