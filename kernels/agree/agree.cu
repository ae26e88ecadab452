// The agreement hash, at the tail of a decode graph: what the ranks must agree on, folded into 8 bytes of state. One launch, one block.
//
//   row  = fold of (request id, position, accept length, its first accept-length ids, sequence length, page delta): h <- mix(h + word)
//   step = mix(rows + sum over rows of mix(row))          commutative: the order of the rows in the batch does not matter
//   chain <- mix(chain ^ step) ; counter <- counter + 1 ; history[counter % 64] <- chain
//   mix is splitmix64's: add the golden gamma, two multiply-xorshifts, one xorshift.
//
// in   request_ids, page_delta [T] uint64 ; positions, accept, seq_lens [T] int32 ; ids [T,W] int32 ; T <= 1024, W <= 64
// io   state [66] uint64: chain, counter, history. The chain loses nothing when it is looked at every N steps only.
// Bytes: under 100 KB at the limit: the launch is the floor.
//
// How: a thread a row, integers only, so the CPU version (agree/reference.py) is the same to the bit by construction.
//
// Versions, us at T = 1 / 6 / 8, one H200 (kernels/results run 13): this one 1.87 / 2.22 / 2.22 with dependent launch (2.3 / 2.7 / 2.7
// without). The bound of 1.5 is missed: the ids are loaded one behind the other; loading them at once is what to try next.
#include "../common/api.h"
#include "../common/device.cuh"

namespace {
using namespace b300k;
constexpr int kThreads = 128, kMaxRows = 1024, kMaxWidth = 64, kHistory = 64;

__device__ __forceinline__ uint64_t mix(uint64_t v) {
  v += 0x9e3779b97f4a7c15ull;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
  return v ^ (v >> 31);
}

struct Args {
  const uint64_t *request_ids, *page_delta;
  const int32_t *positions, *accept, *seq_lens, *ids;
  uint64_t* state;
  int rows, width;
};

__global__ void __launch_bounds__(kThreads) agree_kernel(const __grid_constant__ Args a) {
  __shared__ uint64_t warp_part[kThreads / 32];
  pdl_release();
  pdl_wait();
  uint64_t chain = 0, counter = 0, sum = 0;
  if (threadIdx.x == 0) chain = a.state[0], counter = a.state[1];
  for (int row = threadIdx.x; row < a.rows; row += kThreads) {
    const uint32_t accept = uint32_t(a.accept[row]);
    uint64_t h = mix(a.request_ids[row]);
    h = mix(h + uint32_t(a.positions[row]));
    h = mix(h + accept);
    for (int i = 0; i < a.width && uint32_t(i) < accept; ++i) h = mix(h + uint32_t(a.ids[row * a.width + i]));
    h = mix(h + uint32_t(a.seq_lens[row]));
    h = mix(h + a.page_delta[row]);
    sum += mix(h);
  }
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if ((threadIdx.x & 31) == 0) warp_part[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = uint64_t(a.rows);
  for (int i = 0; i < kThreads / 32; ++i) sum += warp_part[i];
  chain = mix(chain ^ mix(sum));
  ++counter;
  a.state[0] = chain, a.state[1] = counter, a.state[2 + counter % kHistory] = chain;
}
}  // namespace

extern "C" int b300k_agree(const uint64_t* request_ids, const int32_t* positions, const int32_t* ids, const int32_t* accept,
                           const int32_t* seq_lens, const uint64_t* page_delta, uint64_t* state, int rows, int width, int pdl, void* stream) {
  if (rows < 0 || rows > kMaxRows) return B300K_BAD_ROWS;
  if (!state || (rows > 0 && (!request_ids || !positions || !ids || !accept || !seq_lens || !page_delta))) return B300K_NULL;
  if (width < 1 || width > kMaxWidth) return B300K_BAD_LAUNCH;
  const Args a = {request_ids, page_delta, positions, accept, seq_lens, ids, state, rows, width};
  return launch(agree_kernel, 1, kThreads, 1, pdl, stream, 0, a);
}
