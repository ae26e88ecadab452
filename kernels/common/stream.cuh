// Streams a weight matrix W [N,K] through shared memory and multiplies it with up to 8 rows of x: y = x W^T in fp32 sums.
// The core of every matrix-times-few-rows kernel here; what becomes of the sums is the caller's `Sink`.
//
// One block an SM, 16 warps, up to kDepth stages of W in flight by bulk copies (about 200 KB an SM, the first issued before
// the wait on the kernel before: W is written by no kernel of a step). A stage is 8*TEAMS rows of one K/SPLITS slice of the
// columns; the warp that is last to have read one refills it (a warp only for that would leave 96 registers a thread). A team
// of 16/TEAMS warps shares its 8 rows: each warp keeps its own columns of x in registers for the whole launch, so the only
// shared memory traffic is W, read once.
//
// Weights are the B operand of m16n8k16 (8 rows of W), x the A operand (8 of its 16 rows are used): so a unit is 8 rows of W
// with all of K, no block waits for another, and units divide evenly over any number of SMs. The order of the sums is: the
// columns of a warp in order on two chains, then the warps of the team in order. It depends on K alone (the three template
// numbers follow from K), not on the grid, T, or the GPU.
#pragma once
#include "device.cuh"

namespace b300k {

enum WeightKind { kBf16 = 0, kBlocks = 1, kRows = 2 };  // bf16; E4M3 with a UE8M0 scale per 32x32; E4M3 with one per 1x32
constexpr int kStreamWarps = 16, kStreamThreads = kStreamWarps * 32, kStreamTokens = 8, kUnitRows = 8;
constexpr int kMaxDepth = 16, kStreamSharedLimit = 212 * 1024;  // of 227 KB; the rest is for partial sums and barriers

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
__device__ __forceinline__ void barrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Ends: what it waits for is a copy in flight.
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

__device__ __forceinline__ uint32_t times(uint32_t pair, uint32_t factor) {
  uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(factor));
  return out;
}
// Four E4M3 codes -> bf16 pairs (0,2) and (1,3), scaled: sign | exponent,mantissa >> 4, times 2^(120+scale-127), which is
// exact, subnormals included.
__device__ __forceinline__ void widen(uint32_t word, uint32_t factor, uint32_t& even, uint32_t& odd) {
  even = times(((word << 8) & 0x80008000u) | ((word << 4) & 0x07f007f0u), factor);
  odd = times((word & 0x80008000u) | ((word >> 4) & 0x07f007f0u), factor);
}

// An item is UNITS consecutive stage heights of rows; block b takes items b, b + gridDim.x, ...
template <int KIND, int STEPS, int SPLITS, int TEAMS, int UNITS>
struct Stream {
  static constexpr int kKind = KIND, kTeams = TEAMS, kSplits = SPLITS;
  static constexpr int kTeamWarps = kStreamWarps / TEAMS, kBytes = KIND == kBf16 ? 2 : 1;
  static constexpr int kStepColumns = 64 / kBytes, kLaneColumns = 16 / kBytes, kLaneWords = kLaneColumns / 2;
  static constexpr int kColumns = kTeamWarps * STEPS * kStepColumns, kK = kColumns * SPLITS;  // of a stage; of the matrix
  static constexpr int kRowBytes = kColumns * kBytes, kStageRows = kUnitRows * TEAMS, kItemRows = kStageRows * UNITS;
  static constexpr int kStride = kRowBytes + (kRowBytes % 128 == 0 ? 64 : 0);  // odd multiples of 64: reads meet no bank twice
  static constexpr int kStageBytes = kStageRows * kStride;
  static constexpr int kDepth = kStreamSharedLimit / kStageBytes < kMaxDepth ? kStreamSharedLimit / kStageBytes : kMaxDepth;
  static constexpr int kSharedBytes = kDepth * kStageBytes;
  static_assert(kDepth >= 2 && kRowBytes % 64 == 0, "two stages fit");

  struct Shared {
    uint64_t full[kMaxDepth];
    uint32_t readers[kMaxDepth];  // warps that have read the stage
    alignas(16) float part[2][kStreamWarps][kStreamTokens * kUnitRows];
  };

  // Starts the copies of the block's stage `index` (its items, their units, their splits, in order); by a whole warp.
  static __device__ __forceinline__ void fetch(const StreamArgs& a, int index, int slot, char* stages, Shared& s, uint64_t policy) {
    const int lane = threadIdx.x & 31, split = index % SPLITS, unit = index / SPLITS % UNITS;
    const int item = blockIdx.x + index / (SPLITS * UNITS) * gridDim.x;
    if (lane == 0) barrier_expect(&s.full[slot], kStageRows * kRowBytes);
    __syncwarp();
    if (lane < kStageRows) {
      const int64_t row = int64_t(item * UNITS + unit) * kStageRows + lane;
      copy_in(stages + slot * kStageBytes + lane * kStride, a.weight + (row * kK + split * kColumns) * kBytes, kRowBytes, &s.full[slot], policy);
    }
  }
  static __device__ __forceinline__ int stages_of_block(const StreamArgs& a) {
    const int items = a.n / kItemRows;
    return (items - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x) * UNITS * SPLITS;
  }

  // sink.unit(item, unit, row, lane, sum): called by one warp for each 8 rows of W, `row` the first; lane (token, pair) =
  // (lane/4, lane%4) holds the sums of rows row+2*pair and row+2*pair+1. Units of an item always meet the same warp.
  // sink.load(...): may change the lane's words of x when they are loaded.
  template <class Sink>
  static __device__ __forceinline__ void consume(const StreamArgs& a, char* stages, Shared& s, Sink& sink, uint64_t policy) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int team = warp / kTeamWarps, within = warp % kTeamWarps;
    const int first_column = within * STEPS * kStepColumns + t * kLaneColumns;
    uint32_t x[SPLITS][STEPS][kLaneWords];
    const int items = a.n / kItemRows, stage_count = stages_of_block(a);
    int loaded = -1, slot = 0, parity = 0, index = 0, count = 0;

    uint32_t next_scale[STEPS];
    auto load_scales = [&](int row, int split) {
      if constexpr (KIND != kBf16) {
        const int64_t line = int64_t(KIND == kBlocks ? (row + team * kUnitRows) / 32 : row + team * kUnitRows + g) * (kK / 32);
        const uint8_t* from = a.scales + line + (split * kColumns + first_column) / 32;
#pragma unroll
        for (int i = 0; i < STEPS; ++i) next_scale[i] = __ldg(from + i * 2);
      }
    };
    if (int(blockIdx.x) < items) load_scales(blockIdx.x * kItemRows, 0);
    pdl_wait();
    for (int item = blockIdx.x; item < items; item += gridDim.x, ++count) {
      const int group = item * kItemRows / a.group_rows;
      if (group != loaded) {
        loaded = group;
#pragma unroll
        for (int split = 0; split < SPLITS; ++split)
#pragma unroll
          for (int i = 0; i < STEPS; ++i) {
            const int column = split * kColumns + first_column + i * kStepColumns;
            const char* from = a.x + g * a.x_stride + (int64_t(group) * kK + column) * 2;
#pragma unroll
            for (int part = 0; part < kLaneWords / 4; ++part) {
              uint4 v = make_uint4(0, 0, 0, 0);
              if (g < a.rows) {
                v = load_act(from + part * 16);
                sink.load(g, column + part * 8, v);
              }
              uint32_t* into = &x[split][i][part * 4];
              if constexpr (KIND == kBf16) {
                into[0] = v.x, into[1] = v.y, into[2] = v.z, into[3] = v.w;
              } else {  // in the order in which `widen` leaves the codes
                into[0] = __byte_perm(v.x, v.y, 0x5410), into[1] = __byte_perm(v.x, v.y, 0x7632);
                into[2] = __byte_perm(v.z, v.w, 0x5410), into[3] = __byte_perm(v.z, v.w, 0x7632);
              }
            }
          }
      }
#pragma unroll 1
      for (int unit = 0; unit < UNITS; ++unit) {
        const int row = item * kItemRows + unit * kStageRows;
        float sum[2][4] = {};
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
          uint32_t scale[STEPS];
          if constexpr (KIND != kBf16) {
#pragma unroll
            for (int i = 0; i < STEPS; ++i) scale[i] = next_scale[i];
            if (split + 1 < SPLITS) {
              load_scales(row, split + 1);
            } else {  // one stage ahead
              int next = row + kStageRows;
              if (unit + 1 == UNITS) next = (item + int(gridDim.x)) * kItemRows;
              if (next < a.n) load_scales(next, 0);
            }
          }
          barrier_wait(&s.full[slot], parity);
          const char* from = stages + slot * kStageBytes + (team * kUnitRows + g) * kStride + within * STEPS * 64 + t * 16;
          uint4 w[STEPS];
#pragma unroll
          for (int i = 0; i < STEPS; ++i) w[i] = *reinterpret_cast<const uint4*>(from + i * 64);
#pragma unroll
          for (int i = 0; i < STEPS; ++i) {
            const uint32_t word[4] = {w[i].x, w[i].y, w[i].z, w[i].w};
            const uint32_t(&xs)[kLaneWords] = x[split][i];
            if constexpr (KIND == kBf16) {
              mma_bf16(sum[0], xs[0], 0u, xs[1], 0u, word[0], word[1]);
              mma_bf16(sum[1], xs[2], 0u, xs[3], 0u, word[2], word[3]);
            } else {
              const uint32_t factor = (scale[i] + 120u) * 0x00800080u;
#pragma unroll
              for (int j = 0; j < 4; ++j) {
                uint32_t even, odd;
                widen(word[j], factor, even, odd);
                mma_bf16(sum[j & 1], xs[2 * j], 0u, xs[2 * j + 1], 0u, even, odd);
              }
            }
          }
          __syncwarp();
          uint32_t before = 0;
          if (lane == 0)
            asm volatile("atom.acq_rel.cta.shared::cta.inc.u32 %0, [%1], %2;"
                         : "=r"(before)
                         : "r"(shared_address(&s.readers[slot])), "n"(kStreamWarps - 1)
                         : "memory");
          before = __shfl_sync(0xffffffffu, before, 0);
          if (before == kStreamWarps - 1 && index + kDepth < stage_count) fetch(a, index + kDepth, slot, stages, s, policy);
          ++index;
          if (++slot == kDepth) slot = 0, parity ^= 1;
        }
        const int side = (count * UNITS + unit) & 1;
        *reinterpret_cast<float2*>(&s.part[side][warp][g * kUnitRows + 2 * t]) = make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
        __syncthreads();  // two sides: the sums of this unit are read before the next meeting but one
        const int of_team = (warp - count * TEAMS) & (kStreamWarps - 1);  // the warps take turns
        if (of_team < TEAMS) {
          float2 total = *reinterpret_cast<const float2*>(&s.part[side][of_team * kTeamWarps][lane * 2]);
#pragma unroll
          for (int i = 1; i < kTeamWarps; ++i) {
            const float2 more = *reinterpret_cast<const float2*>(&s.part[side][of_team * kTeamWarps + i][lane * 2]);
            total = make_float2(total.x + more.x, total.y + more.y);
          }
          sink.unit(unit, row + of_team * kUnitRows, lane, total);
        }
      }
    }
  }

  // The whole of it; by all threads of a block. All sums have met the sink of some warp afterwards.
  template <class Sink>
  static __device__ __forceinline__ void run(const StreamArgs& a, char* stages, Shared& s, Sink& sink) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    if (threadIdx.x < 32) {
      if (threadIdx.x < kDepth) barrier_init(&s.full[threadIdx.x], 1), s.readers[threadIdx.x] = 0;
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      __syncwarp();
      for (int i = 0; i < kDepth && i < stages_of_block(a); ++i) fetch(a, i, i, stages, s, policy);
    }
    __syncthreads();
    pdl_release();
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
