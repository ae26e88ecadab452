// Streams a weight matrix W [N,K] through shared memory and multiplies it with up to 8 rows of x: y = x W^T in fp32 sums.
// The core of every matrix-times-few-rows kernel here; what becomes of the sums is the caller's `Sink`.
//
// One block an SM, 16 warps, up to kDepth stages of W in flight by bulk copies (about 200 KB an SM, the first issued before
// the wait on the kernel before: W is written by no kernel of a step). A stage is 16*TEAMS rows of one K/SPLITS slice of the
// columns. A team of 16/TEAMS warps shares its 16 rows: each warp keeps its own columns of x in registers for the whole launch,
// so the only shared memory traffic is W, read once. The warps never meet: each puts its sums into a ring and goes on; four warps
// in turn refill a stage, one (a team) in turn adds the sums of a unit, each one step late so that they seldom wait.
//
// E4M3 becomes f16 in one conversion for two codes, exactly, and meets x in f16: a warp scales its columns of each row of x by a
// power of two so that the largest is at 2^14, which loses what lies 2^-39 below it, and takes that out of its sums. The scales
// of W multiply the fp32 sums of each 32 columns. bf16 weights meet x in bf16.
//
// Weights are the A operand of m16n8k16 (16 rows of W), x the B operand: a unit is 16 rows of W with all of K, and no block waits
// for another. The order of the sums is: the columns of a warp in order, then the warps of the team in order. It depends on K
// alone (the three template numbers follow from K), not on the grid, T, or the GPU.
//
// Versions that were tried, one H200 (wq_b at T=1, without | the MXFP8 head):
//   loads to registers, no shared memory for W (K6 v1)                                     14.3
//   units of 8 rows, x as A, codes to bf16 by bit moves, the block meets at each unit      19.5 | 202   run 9: 32 row copies a stage
//   the same with one copy a stage                                                         15.9        run 9
//   x as B (half the registers), no meeting                                                15.9 | 177   run 10: 163 instructions a KB
//      of W, 0.41 issued a cycle, half of them for the widening: the consumer was the bound, not DRAM
//   units of 16 rows, f16 by conversion                                                    14.9 | 166   run 11: 31% of all warp time at the
//      first barrier, behind one warp that started 160 copies
//   every warp starts its share of the copies (used)                                       13.6 | 157   run 13
// What is left, wq_b: 42 MB at 4.3 TB/s is 9.8; a block fills its SM, so nothing of the next call is in flight while this one's last
// stage is multiplied, and a start costs a launch, a DRAM latency and x (at T=8 17 MB of x through L2 for wo_b: 1.4 us).
// compute-sanitizer racecheck (run 13) reports the sums' ring and the refilled stages of this file: lane 0 arrives on a barrier for
// its warp after __syncwarp, which it may not follow. Not settled: see kernels/README.md.
#pragma once
#include "device.cuh"

namespace b300k {

enum WeightKind { kBf16 = 0, kBlocks = 1, kRows = 2 };  // bf16; E4M3 with a UE8M0 scale per 32x32; E4M3 with one per 1x32
constexpr int kStreamWarps = 16, kStreamThreads = kStreamWarps * 32, kStreamTokens = 8, kUnitRows = 16;
constexpr int kMaxDepth = 16, kStreamSharedLimit = 205 * 1024;  // of 227 KB; the rest is for the sums and barriers
#ifdef B300K_EVERY_LANE  // for racecheck: each lane arrives for itself instead of lane 0 for its warp
constexpr int kArriving = 32;
#else
constexpr int kArriving = 1;
#endif
constexpr int kFetchers = 4;  // warps that refill a stage
constexpr int kRing = 2, kPartStride = 20;  // floats between the tokens of a warp's sums: no bank twice

struct StreamArgs {
  const char *x, *weight;
  const uint8_t* scales;
  int64_t x_stride;  // bytes between rows of x
  int rows, n;
  int group_rows;  // rows of W that share one K-slice of x (n when there is one group)
};

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void barrier_init(uint64_t* b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Ends: what it waits for is a copy in flight, or warps of this block that are at an earlier stage or unit.
__device__ __forceinline__ void barrier_wait(uint64_t* b, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(b)), "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void copy_in(void* to, const void* from, uint32_t bytes, uint64_t* b, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(b)), "l"(policy)
               : "memory");
}

__device__ __forceinline__ uint32_t f16_of_codes(uint32_t two) {
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(uint16_t(two)));
  return out;
}
__device__ __forceinline__ uint32_t f16_of(float lo, float hi) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(hi), "f"(lo));
  return out;
}
__device__ __forceinline__ void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// An item is UNITS consecutive stage heights of rows; block b takes items b, b + gridDim.x, ...
template <int KIND, int STEPS, int SPLITS, int TEAMS, int UNITS>
struct Stream {
  static constexpr int kTeamWarps = kStreamWarps / TEAMS, kBytes = KIND == kBf16 ? 2 : 1;
  static constexpr int kColumns = kTeamWarps * STEPS * 32, kK = kColumns * SPLITS;  // of a stage; of the matrix
  static constexpr int kRowBytes = kColumns * kBytes, kStageRows = kUnitRows * TEAMS, kItemRows = kStageRows * UNITS;
  // Rows of a stage lie apart so that reads meet no bank twice: 16 bytes a lane of two rows (bf16), 8 bytes of four (E4M3).
  static constexpr int kStride = kRowBytes + (kRowBytes % 128 == 0 ? 32 * kBytes : 0);
  static constexpr int kStageBytes = kStageRows * kStride;
  static constexpr int kDepth = kStreamSharedLimit / kStageBytes < kMaxDepth ? kStreamSharedLimit / kStageBytes : kMaxDepth;
  static constexpr int kSharedBytes = kDepth * kStageBytes;
  static constexpr int kScaleRows = KIND == kRows ? 2 : 1;  // scales a lane needs for 32 columns: rows g and g+8, or one for both
  static_assert(kDepth >= 2 && kRowBytes % 64 == 0 && kStageRows <= 32, "two stages fit, a warp can fetch one");

  struct Shared {
    uint64_t full[kMaxDepth], empty[kMaxDepth];  // of stages: the copy is there; 16 warps have read it
    uint64_t summed[kRing], written[kRing];      // of units: TEAMS warps have added its sums; 16 warps have written theirs
    alignas(16) float part[kRing][kStreamWarps][kStreamTokens * kPartStride];
  };

  // Starts the copies of the rows `share` of `shares` of the block's stage `index` (its items, their units, their splits, in order);
  // by a whole warp. A warp starts a copy in about 58 cycles, one after the other: so many warps take a share.
  template <int SHARES>
  static __device__ __forceinline__ void fetch(const StreamArgs& a, int index, int slot, int share, char* stages, Shared& s, uint64_t policy) {
    constexpr int kShareRows = kStageRows / SHARES;
    const int lane = threadIdx.x & 31, split = index % SPLITS, unit = index / SPLITS % UNITS;
    const int item = blockIdx.x + index / (SPLITS * UNITS) * gridDim.x, in_stage = share * kShareRows + lane;
    if (share == 0 && lane == 0) barrier_expect(&s.full[slot], kStageRows * kRowBytes);
    if (lane < kShareRows) {
      const int64_t row = int64_t(item * UNITS + unit) * kStageRows + in_stage;
      copy_in(stages + slot * kStageBytes + in_stage * kStride, a.weight + (row * kK + split * kColumns) * kBytes, kRowBytes, &s.full[slot], policy);
    }
    __syncwarp();
  }
  static __device__ __forceinline__ int stages_of_block(const StreamArgs& a) {
    const int items = a.n / kItemRows;
    return (items - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x) * UNITS * SPLITS;
  }

  // x of this warp's columns into registers, eight columns a lane and 32; returns what its sums must be multiplied with (E4M3).
  template <class Sink>
  static __device__ __forceinline__ void load_x(const StreamArgs& a, int group, int first_column, int g, uint32_t (&x)[SPLITS][STEPS][4],
                                                float (&inverse)[2], Sink& sink) {
    const char* row = a.x + g * a.x_stride + int64_t(group) * kK * 2;
    if (g < a.rows) sink.prepare(g);
    uint32_t largest = 0;
#pragma unroll
    for (int split = 0; split < SPLITS; ++split)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        const int column = split * kColumns + first_column + i * 32;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (g < a.rows) v = load_act(row + column * 2);
        uint32_t(&into)[4] = x[split][i];
        into[0] = v.x, into[1] = v.y, into[2] = v.z, into[3] = v.w;
      }
    // Only now may a word be used: all loads are in flight.
#pragma unroll
    for (int split = 0; split < SPLITS; ++split)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        uint32_t(&into)[4] = x[split][i];
        if (g < a.rows) sink.change(g, split * kColumns + first_column + i * 32, into);
        if constexpr (KIND != kBf16) {
#pragma unroll
          for (int j = 0; j < 4; ++j) largest = max(largest, max(into[j] & 0x7fffu, into[j] >> 16 & 0x7fffu));
        }
      }
    if constexpr (KIND != kBf16) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const uint32_t power = min(268u - (largest >> 7), 252u);  // biased; the largest comes to 2^14
      const float factor = __uint_as_float(power << 23);
#pragma unroll
      for (int split = 0; split < SPLITS; ++split)
#pragma unroll
        for (int i = 0; i < STEPS; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) x[split][i][j] = f16_of(bf_lo(x[split][i][j]) * factor, bf_hi(x[split][i][j]) * factor);
      // Half the inverse: a scale byte b goes in as 2^(b+1-127), so that byte 0 is no subnormal. A lane's sums are of tokens 2t, 2t+1.
      const float mine = __uint_as_float((253u - power) << 23);
      const int t = threadIdx.x & 3;
      inverse[0] = __shfl_sync(0xffffffffu, mine, t * 8), inverse[1] = __shfl_sync(0xffffffffu, mine, t * 8 + 4);
    }
  }

  // sink.unit(unit, row, lane, sum): called by one warp for each 16 rows of W, `row` the first; lane (token, quad) = (lane/4,
  // lane%4) holds the sums of rows row+4*quad to row+4*quad+3. Units of an item always meet the same warp.
  // sink.prepare(token), sink.change(token, column, words): may change eight columns of a row of x when they are loaded.
  template <class Sink>
  static __device__ __forceinline__ void consume(const StreamArgs& a, char* stages, Shared& s, Sink& sink, uint64_t policy) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int team = warp / kTeamWarps, within = warp % kTeamWarps, first_column = within * STEPS * 32 + t * 8;
    const int items = a.n / kItemRows, stage_count = stages_of_block(a);
    int loaded = -1, slot = 0, parity = 0, index = 0, count = 0;
    uint32_t x[SPLITS][STEPS][4];
    float inverse[2] = {1.0f, 1.0f};

    uint32_t next_scale[kScaleRows][STEPS];
    auto load_scales = [&](int row, int split) {
      if constexpr (KIND != kBf16) {
#pragma unroll
        for (int r = 0; r < kScaleRows; ++r) {
          const int line = KIND == kBlocks ? (row + team * kUnitRows) / 32 : row + team * kUnitRows + g + 8 * r;
          const uint8_t* from = a.scales + int64_t(line) * (kK / 32) + split * (kColumns / 32) + within * STEPS;
#pragma unroll
          for (int i = 0; i < STEPS; ++i) next_scale[r][i] = __ldg(from + i);
        }
      }
    };
    if (int(blockIdx.x) < items) load_scales(blockIdx.x * kItemRows, 0);
    pdl_wait();
    for (int item = blockIdx.x; item < items; item += gridDim.x, ++count) {
      const int group = item * kItemRows / a.group_rows;
      if (group != loaded) {
        loaded = group;
        load_x(a, group, first_column, g, x, inverse, sink);
      }
#pragma unroll 1
      for (int unit = 0; unit < UNITS; ++unit) {
        const int row = item * kItemRows + unit * kStageRows;
        float sum[4] = {};
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
          float scale[kScaleRows][STEPS];
          if constexpr (KIND != kBf16) {
#pragma unroll
            for (int r = 0; r < kScaleRows; ++r)
#pragma unroll
              for (int i = 0; i < STEPS; ++i) scale[r][i] = __uint_as_float((next_scale[r][i] + 1u) << 23);
            if (split + 1 < SPLITS) {
              load_scales(row, split + 1);
            } else {  // one stage ahead
              int next = row + kStageRows;
              if (unit + 1 == UNITS) next = (item + int(gridDim.x)) * kItemRows;
              if (next < a.n) load_scales(next, 0);
            }
          }
          barrier_wait(&s.full[slot], parity);
          const char* upper = stages + slot * kStageBytes + (team * kUnitRows + g) * kStride + first_column * kBytes;
          const char* lower = upper + 8 * kStride;
#pragma unroll
          for (int i = 0; i < STEPS; ++i) {
            const uint32_t(&xs)[4] = x[split][i];
            if constexpr (KIND == kBf16) {
              const uint4 u = *reinterpret_cast<const uint4*>(upper + i * 64), l = *reinterpret_cast<const uint4*>(lower + i * 64);
              mma_bf16(sum, u.x, l.x, u.y, l.y, xs[0], xs[1]);
              mma_bf16(sum, u.z, l.z, u.w, l.w, xs[2], xs[3]);
            } else {
              const uint2 u = *reinterpret_cast<const uint2*>(upper + i * 32), l = *reinterpret_cast<const uint2*>(lower + i * 32);
              float block[4] = {};
              mma_f16(block, f16_of_codes(u.x), f16_of_codes(l.x), f16_of_codes(u.x >> 16), f16_of_codes(l.x >> 16), xs[0], xs[1]);
              mma_f16(block, f16_of_codes(u.y), f16_of_codes(l.y), f16_of_codes(u.y >> 16), f16_of_codes(l.y >> 16), xs[2], xs[3]);
#pragma unroll
              for (int j = 0; j < 4; ++j) sum[j] = __fmaf_rn(block[j], scale[j >> 1 & (kScaleRows - 1)][i], sum[j]);
            }
          }
          __syncwarp();
          if (lane < kArriving) barrier_arrive(&s.empty[slot]);
          // Four in turn refill the stage before this one.
          const int share = (warp - (index - 1) * kFetchers) & (kStreamWarps - 1);
          if (index > 0 && share < kFetchers && index - 1 + kDepth < stage_count) {
            const int before = slot == 0 ? kDepth - 1 : slot - 1;
            barrier_wait(&s.empty[before], slot == 0 ? parity ^ 1 : parity);
            fetch<kFetchers>(a, index - 1 + kDepth, before, share, stages, s, policy);
          }
          ++index;
          if (++slot == kDepth) slot = 0, parity ^= 1;
        }
        const int turn = count * UNITS + unit, place = turn % kRing;
        if (turn >= kRing) barrier_wait(&s.summed[place], (turn / kRing - 1) & 1);
        float* part = s.part[place][warp];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float value = KIND == kBf16 ? sum[j] : sum[j] * inverse[j & 1];
          part[(2 * t + (j & 1)) * kPartStride + g + 8 * (j >> 1)] = value;
        }
        __syncwarp();
        if (lane < kArriving) barrier_arrive(&s.written[place]);
        if (turn > 0) add_unit(turn - 1, warp, lane, s, sink);
      }
    }
    if (count > 0) add_unit(count * UNITS - 1, warp, lane, s, sink);
  }

  // Adds the sums of the block's unit `turn` and hands them to the sink, if this warp is the one (of its team) whose turn it is.
  template <class Sink>
  static __device__ __forceinline__ void add_unit(int turn, int warp, int lane, Shared& s, Sink& sink) {
    const int item = turn / UNITS, unit = turn % UNITS, team = (warp - item * TEAMS) & (kStreamWarps - 1), place = turn % kRing;
    if (team >= TEAMS) return;
    barrier_wait(&s.written[place], (turn / kRing) & 1);
    float4 more[kTeamWarps];
#pragma unroll
    for (int i = 0; i < kTeamWarps; ++i)
      more[i] = *reinterpret_cast<const float4*>(&s.part[place][team * kTeamWarps + i][(lane >> 2) * kPartStride + (lane & 3) * 4]);
    float4 total = more[0];
#pragma unroll
    for (int i = 1; i < kTeamWarps; ++i)
      total = make_float4(total.x + more[i].x, total.y + more[i].y, total.z + more[i].z, total.w + more[i].w);
    __syncwarp();
    if (lane < kArriving) barrier_arrive(&s.summed[place]);
    sink.unit(unit, (int(blockIdx.x) + item * int(gridDim.x)) * kItemRows + unit * kStageRows + team * kUnitRows, lane, total);
  }

  // The whole of it; by all threads of a block. All sums have met the sink of some warp afterwards.
  template <class Sink>
  static __device__ __forceinline__ void run(const StreamArgs& a, char* stages, Shared& s, Sink& sink) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    if (threadIdx.x < 32) {
      if (threadIdx.x < kDepth) barrier_init(&s.full[threadIdx.x], 1), barrier_init(&s.empty[threadIdx.x], kStreamWarps * kArriving);
      if (threadIdx.x < kRing) barrier_init(&s.summed[threadIdx.x], TEAMS * kArriving), barrier_init(&s.written[threadIdx.x], kStreamWarps * kArriving);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    pdl_release();
    for (int i = 0; i < kDepth && i < stages_of_block(a); ++i) fetch<kStreamWarps>(a, i, i, threadIdx.x >> 5, stages, s, policy);
    consume(a, stages, s, sink, policy);
  }
};

template <typename Kernel, typename... Args>
inline int launch_stream(Kernel kernel, int shared_bytes, int blocks, int pdl, void* stream, const Args&... args) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return int(error);
  return launch(kernel, blocks, kStreamThreads, 1, pdl, stream, shared_bytes, args...);
}

}  // namespace b300k
