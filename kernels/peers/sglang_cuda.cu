// Launches SGLang's own JIT CUDA kernels through a plain C interface, so that they can be timed beside ours without its
// Python. Includes its headers from an unpacked wheel (never committed); built by kernels/peers/build.py for sm_90 only.
#include "deepseek_v4/main_norm_rope.cuh"
#include "deepseek_v4/rope.cuh"
#include "elementwise/rmsnorm.cuh"
#include "gemm/hopper_bf16_gemv.cuh"
#include "gemm/tiny_gemm.cuh"

namespace {
template <typename... Params>
int start(void (*kernel)(Params...), int blocks, int threads, void* stream, Params... params) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return int(cudaLaunchKernelEx(&config, kernel, params...));
}

using Gate = sglang::GEMMTraitN<384, 5120, 3, 32, sglang::bf16_t>;
template <uint32_t M>
int gate(void* stream, sglang::TinyGEMMParams params) {
  return start<sglang::TinyGEMMParams>(sglang::tiny_n_gemm_kernel<Gate, M, float, true, sglang::bf16_t>, Gate::kNumBlocks, Gate::kBlockSize, stream, params);
}

template <sglang::deepseek_v4::KVLayout layout>
int key(int rows, void* stream, const sglang::FusedKNormRopeFlashMLAParams& params) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows);
  config.blockDim = dim3(sglang::kFusedKBlockSize);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return int(cudaLaunchKernelEx(&config, sglang::fused_k_norm_rope_flashmla<sglang::bf16_t, 512, 64, int32_t, 6, layout, true>, params));
}
}  // namespace

extern "C" int peer_gate_gemm(const void* x, const void* w, void* out, int rows, void* stream) {
  const sglang::TinyGEMMParams params = {.out = out, .x = static_cast<const sglang::bf16_t*>(x), .w = w, .stride_x = 5120};
  switch (rows) {
    case 1: return gate<1>(stream, params);
    case 6: return gate<6>(stream, params);
    case 8: return gate<8>(stream, params);
    default: return -1;
  }
}

extern "C" int peer_q_norm(const void* qkv, const void* weight, void* out, int rows, float eps, void* stream) {
  const sglang::RMSNormParams params = {.input = qkv, .weight = weight, .output = out, .input_stride = 1792,
                                        .output_stride = 1280, .num_tokens = uint32_t(rows), .eps = eps};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows);
  config.blockDim = dim3(sglang::host::norm::get_cta_threads<sglang::bf16_t, 1280>());
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return int(cudaLaunchKernelEx(&config, sglang::rmsnorm_cta<1280, true, sglang::bf16_t>, params));
}

// page size 64; layout 0 = V4, 1 = V41; kv is the qkv row's tail.
extern "C" int peer_kv(const void* qkv, const void* weight, const float* cos_sin, const int32_t* positions, const int32_t* slots,
                       void* cache, int rows, float eps, int layout, void* stream) {
  sglang::FusedKNormRopeFlashMLAParams params = {};
  params.kv = static_cast<const char*>(qkv) + 1280 * 2;
  params.kv_weight = weight;
  params.freqs_cis = cos_sin;
  params.positions = positions;
  params.out_loc = slots;
  params.kvcache = static_cast<uint8_t*>(cache);
  params.kv_stride_batch = 1792;
  params.batch_size = uint32_t(rows);
  params.eps = eps;
  return layout == 0 ? key<sglang::deepseek_v4::KVLayout::V4>(rows, stream, params)
                     : key<sglang::deepseek_v4::KVLayout::V41>(rows, stream, params);
}

// One row of x, bf16, with the tile that its host code picks for n < 8192 or n < 12288 (1 row a warp, 8 warps).
template <uint32_t N, uint32_t K, uint32_t kRows>
int gemv(void* out, const void* x, const void* w, void* stream) {
  using sglang::bf16_t;
  return start<bf16_t*, const bf16_t*, const bf16_t*>(sglang::hopper_bf16_gemv_kernel<N, K, kRows, 2, 8, true>, (N + 8 * kRows - 1) / (8 * kRows), 256,
                                                      stream, static_cast<bf16_t*>(out), static_cast<const bf16_t*>(x), static_cast<const bf16_t*>(w));
}
extern "C" int peer_gemv(const void* x, const void* w, void* out, int n, int k, void* stream) {
  if (n == 1792 && k == 5120) return gemv<1792, 5120, 1>(out, x, w, stream);
  if (n == 5120 && k == 8192) return gemv<5120, 8192, 1>(out, x, w, stream);
  if (n == 5120 && k == 2048) return gemv<5120, 2048, 1>(out, x, w, stream);
  return -1;
}

// The last 64 dims of each head of o [rows,heads,512], turned back in place.
extern "C" int peer_turn_back(void* o, const float* cos_sin, const int32_t* positions, int rows, int heads, void* stream) {
  sglang::FusedQKRopeParams params = {};
  params.q = static_cast<char*>(o) + 448 * 2;
  params.freqs_cis = cos_sin;
  params.positions = positions;
  params.q_stride_batch = int64_t(heads) * 1024;
  params.q_stride_head = 1024;
  params.num_q_heads = uint32_t(heads);
  params.batch_size = uint32_t(rows);
  const int blocks = (rows * heads + int(sglang::kNumWarps) - 1) / int(sglang::kNumWarps);
  return start<sglang::FusedQKRopeParams>(sglang::deepseek_rope_kernel<true, true, int32_t>, blocks, sglang::kBlockSize, stream, params);
}
