// K4, the router: gate GEMV, scores, top-6 of 384, weights and packed ids. One launch.
//
//   l = x Wg^T (fp32 sums) ; s = sqrt(l > 20 ? l : log1p(exp(l)))
//   ids = the six largest s + bias, ties to the lowest id, NaN ranks first (it must be seen, not dropped)
//   weight_k = s_k / (s_1 + ... + s_6 + 1e-20) * route_scale ; packed_k = id_k << 16 | bf16 bits of weight_k
//   rows at or past *valid_rows: weight 0, id -1 (padding rows of a captured graph)
//
// in   x [T,5120] bf16 ; weight [384,5120] bf16 ; bias [384] fp32 ; valid_rows int32 on the device or null
// out  weights [T,6] fp32 ; ids, packed [T,6] int32 ; logits [T,384] fp32 or null
// Bytes at T=8: Wg 3.93 MB (cold) + x 0.08 MB = 4.0 MB: 0.93 us at 4.3 TB/s plus a launch.
//
// How: splitting only the experts would make each of 128 SMs read all of x (10 MB through L2 at T=8: more than Wg), so a
// cluster of 8 blocks takes 24 experts and each block one eighth of K: 30 KB of Wg and 10 KB of x a block. bf16 mma with the
// 8 rows as M and 8 experts as N sums K without shuffles; the partials meet in the owner block's shared memory (st.async on
// an mbarrier) and are added in rank order. Scores go to the workspace; the block that arrives last does the top-6, one warp
// a row. Wg is read before the wait on the kernel before (programmatic dependent launch).
//
// Versions, us at T = 1 / 6 / 8 with dependent launch, one H200, 2026-11-29 (kernels/results):
//   v1 top-6 inlined: 110 registers, one block an SM                        7.21 / 7.88 / 7.87   run 3
//   v2 top-6 called: 95 registers, two blocks an SM                         5.83 / 6.03 / 6.23   run 5 (variant)
//   v3 clusters of 4, 12 experts each                                       6.41 / 6.59 / 6.85   run 5 (variant)
//   v4 v2 with __launch_bounds__(320, 2)                                    6.46 / 6.66 / 6.81   run 8: worse than v2
//   v2 again                                                                5.84 / 6.06 / 6.26   run 9
//   v5 128 blocks of three experts, no cluster, all of x in each block      6.56 / 7.16 / 7.85   run 9: one block fills an SM, so the
//      next call's blocks do not start early; without dependent launch it took as long as the clusters
//   v6 v2, the six rounds by a tree over the lane's twelve                  6.60 /  -   / 7.24   run 10: without the top-6 3.04 / 3.14,
//      without the last block too 2.46 / 2.54: six unrolled rounds are 10 KB of code that the last block's SM has to fetch
//   v7 v6, the rounds in a loop (used)                                      4.92 /  -   / 5.24   run 11
//      the same                                                             4.87 / 5.04 / 5.23   run 13
//   v8 v7, an idle warp runs the top-6 beforehand (warm code)               4.87 /  -   / 5.28   run 12; 7.3 without dependent launch
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kHidden = 5120, kExperts = 384, kTop = 6, kTile = 8;
constexpr int kRanks = 8, kRankExperts = 3, kPartExperts = kRanks * kRankExperts, kParts = kExperts / kPartExperts;
constexpr int kColumns = (kPartExperts + 7) / 8;  // mma tiles of 8 experts
constexpr int kThreads = 320, kWarps = kThreads / 32, kRankK = kHidden / kRanks, kWarpK = kRankK / kWarps, kSteps = kWarpK / 32;
constexpr int kMaxRows = 256, kCounterBytes = (kMaxRows / kTile) * 128;
static_assert(kSteps * 32 * kWarps * kRanks == kHidden && kParts * kPartExperts == kExperts, "the parts cover the gate");

struct Args {
  const char *x, *weight;
  const float* bias;
  const int32_t* valid_rows;
  float *weights, *logits;
  int32_t *ids, *packed;
  float2* scores;
  char* counters;
  int rows;
  float route_scale;
};

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ uint32_t of_rank(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
// Unsigned order equal to the order of floats, -0 equal to +0, NaN as +inf; never 0, which marks a taken expert.
__device__ __forceinline__ uint32_t order_key(float v) {
  v = v == v ? v + 0.0f : __uint_as_float(0x7f800000u);
  const uint32_t bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Candidate {
  uint32_t key;
  int slot;  // of the lane's twelve
  float score;
};
// The first largest of the lane's keys, as a tree: its depth is what a round waits for.
template <int N>
__device__ __forceinline__ Candidate first_largest(const Candidate (&from)[N]) {
  if constexpr (N == 1) {
    return from[0];
  } else {
    Candidate half[(N + 1) / 2];
#pragma unroll
    for (int i = 0; i < (N + 1) / 2; ++i) half[i] = 2 * i + 1 < N && from[2 * i + 1].key > from[2 * i].key ? from[2 * i + 1] : from[2 * i];
    return first_largest(half);
  }
}

// Not inlined: its registers would leave room for one block an SM only, and clusters of 8 then wait for each other.
__device__ __noinline__ void top6(const Args& a, int row, int lane, int valid_rows) {
  constexpr int kMine = kExperts / 32;
  Candidate all[kMine];
  const float2* scores = a.scores + int64_t(row) * kExperts + lane;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const float2 v = __ldcg(scores + i * 32);
    all[i] = {order_key(v.y), i, v.x};
  }
  float chosen = 0.0f, sum = 0.0f;  // lane k keeps the k-th
  int id = 0;
#pragma unroll 1
  for (int k = 0; k < kTop; ++k) {
    const Candidate mine = first_largest(all);
    const uint32_t best = __reduce_max_sync(0xffffffffu, mine.key);
    const uint32_t winner = __reduce_min_sync(0xffffffffu, mine.key == best ? uint32_t(lane + 32 * mine.slot) : 0xffffffffu);
    const float score = __shfl_sync(0xffffffffu, mine.score, winner & 31);
    if (lane == k) chosen = score, id = int(winner);
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      if (winner == uint32_t(lane + 32 * i)) all[i].key = 0;
    sum += score;
  }
  if (lane >= kTop) return;
  const bool live = row < valid_rows;
  const float weight = live ? chosen / (sum + 1e-20f) * a.route_scale : 0.0f;
  const int out = live ? id : -1, at = row * kTop + lane;
  a.weights[at] = weight;
  a.ids[at] = out;
  a.packed[at] = int(uint32_t(out) << 16 | __bfloat16_as_ushort(__float2bfloat16_rn(weight)));
}

__device__ __forceinline__ void load_w(const Args& a, int part, int rank, int warp, int lane, uint4 (&w)[kColumns][kSteps]) {
  const char* from = a.weight + (int64_t(part * kPartExperts + (lane >> 2)) * kHidden + rank * kRankK + warp * kWarpK + (lane & 3) * 8) * 2;
#pragma unroll
  for (int n = 0; n < kColumns; ++n)
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      w[n][s] = make_uint4(0, 0, 0, 0);
      if (n * 8 + (lane >> 2) < kPartExperts) w[n][s] = load_weight(from + (n * 8 * kHidden + s * 32) * 2);
    }
}

__global__ void __cluster_dims__(kRanks, 1, 1) __launch_bounds__(kThreads) gate_kernel(const __grid_constant__ Args a) {
  __shared__ alignas(16) float warp_part[kWarps][kTile * kPartExperts];
  __shared__ alignas(16) float received[2][kRanks][kTile * kRankExperts];
  __shared__ alignas(8) uint64_t arrived[2];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int cluster_id = blockIdx.x / kRanks, clusters = gridDim.x / kRanks;
  const int items = (a.rows + kTile - 1) / kTile * kParts;

  if (tid == 0) {
    for (int i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[i])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  pdl_release();
  uint4 w[kColumns][kSteps];
  load_w(a, cluster_id % kParts, rank, warp, lane, w);
  float bias = a.bias[cluster_id % kParts * kPartExperts + int(rank) * kRankExperts + tid % kRankExperts];
  pdl_wait();
  const int valid_rows = a.valid_rows == nullptr ? a.rows : *a.valid_rows;

  int turn = 0;
  for (int item = cluster_id; item < items; item += clusters, ++turn) {
    const int tile = item / kParts, part = item % kParts, row = tile * kTile + g;
    if (turn != 0) {
      load_w(a, part, rank, warp, lane, w);
      bias = a.bias[part * kPartExperts + int(rank) * kRankExperts + tid % kRankExperts];
    }
    uint4 x[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      x[s] = make_uint4(0, 0, 0, 0);
      if (row < a.rows) x[s] = load_act(a.x + (int64_t(row) * kHidden + rank * kRankK + warp * kWarpK + t * 8 + s * 32) * 2);
    }
    float sum[kColumns][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        mma_bf16(sum[n], x[s].x, 0u, x[s].y, 0u, w[n][s].x, w[n][s].y);
        mma_bf16(sum[n], x[s].z, 0u, x[s].w, 0u, w[n][s].z, w[n][s].w);
      }
#pragma unroll
    for (int n = 0; n < kColumns; ++n)
      if (n * 8 + 2 * t < kPartExperts)
        *reinterpret_cast<float2*>(&warp_part[warp][g * kPartExperts + n * 8 + 2 * t]) = make_float2(sum[n][0], sum[n][1]);
    __syncthreads();

    const int slot = turn & 1;
    if (turn == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const uint32_t barrier = shared_address(&arrived[slot]);
    if (tid == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kRanks * kTile * kRankExperts * 4) : "memory");
    if (tid < kTile * kPartExperts) {
      float value = warp_part[0][tid];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) value += warp_part[i][tid];
      const int of_row = tid / kPartExperts, expert = tid % kPartExperts, owner = expert / kRankExperts;
      const uint32_t target = of_rank(shared_address(&received[slot][rank][of_row * kRankExperts + expert % kRankExperts]), owner);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target),
                   "r"(__float_as_uint(value)), "r"(of_rank(barrier, owner))
                   : "memory");
    }
    if (tid < kTile * kRankExperts) {
      uint32_t done = 0;
      const uint32_t parity = (turn >> 1) & 1;
      while (!done)  // ends: the cluster is co-scheduled and every block of it sends its 96 bytes
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
      float logit = received[slot][0][tid];
#pragma unroll
      for (int i = 1; i < kRanks; ++i) logit += received[slot][i][tid];
      const int of_row = tile * kTile + tid / kRankExperts, expert = part * kPartExperts + int(rank) * kRankExperts + tid % kRankExperts;
      if (of_row < a.rows) {
        const float score = sqrtf(logit > 20.0f ? logit : log1pf(expf(logit)));
        a.scores[int64_t(of_row) * kExperts + expert] = make_float2(score, score + bias);
        if (a.logits != nullptr) a.logits[int64_t(of_row) * kExperts + expert] = logit;
      }
    }
    // The barrier inside also orders this item's reads of shared memory before the next item's stores.
    if (arrive_last(reinterpret_cast<uint32_t*>(a.counters + tile * 128), kParts * kRanks)) {
      const int mine = tile * kTile + warp;
      if (warp < kTile && mine < a.rows) top6(a, mine, lane, valid_rows);
    }
  }
  if (turn == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
}  // namespace

extern "C" int64_t b300k_gate_workspace(int rows) {
  return kCounterBytes + int64_t(rows < 1 ? 1 : rows) * kExperts * int64_t(sizeof(float2));
}

extern "C" int b300k_gate(const void* x, const void* weight, const float* bias, const int32_t* valid_rows, float* out_weights,
                          int32_t* out_ids, int32_t* out_packed, float* out_logits, void* workspace, int rows,
                          float route_scale, int blocks, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (rows == 0) return 0;
  if (!x || !weight || !bias || !out_weights || !out_ids || !out_packed || !workspace) return B300K_NULL;
  for (const void* p : {x, weight, static_cast<const void*>(workspace)})
    if (!aligned16(p)) return B300K_MISALIGNED;
  if (blocks < 1 || blocks > 8191) return B300K_BAD_LAUNCH;
  const int items = (rows + kTile - 1) / kTile * kParts;
  Args a = {static_cast<const char*>(x), static_cast<const char*>(weight), bias, valid_rows, out_weights, out_logits, out_ids,
            out_packed, reinterpret_cast<float2*>(static_cast<char*>(workspace) + kCounterBytes), static_cast<char*>(workspace),
            rows, route_scale};
  // `blocks` counts clusters of 8 blocks: one cluster is the least that can run.
  return launch(gate_kernel, (blocks < items ? blocks : items) * kRanks, kThreads, 1, pdl, stream, 0, a);
}
