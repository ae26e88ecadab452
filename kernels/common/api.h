// Plain C interface of the fused decode kernels: pointers, shapes, a stream; no global state, no allocation, no
// host synchronisation. Every function returns 0, a negative B300K_* code (a bad argument: nothing was launched), or a
// positive cudaError_t of the launch. All pointers are device pointers, 16-byte aligned; rows may be 0.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  B300K_BAD_ROWS = -1,       // rows < 0 or over the operator's limit
  B300K_BAD_LAUNCH = -2,     // a launch parameter outside what the kernel was built for
  B300K_MISALIGNED = -3,     // a pointer that is not 16-byte aligned
  B300K_NULL = -4,           // a required pointer is null
};

const char* b300k_error_text(int code);
// Compute capability as 10*major+minor and SM count of the current device; 0 when both were read.
int b300k_device(int* capability, int* sm_count);

// K1: R' = post*y + C^T R ; x = rmsnorm(sum_k pre_k R'_k) * w ; optional fp8 of x (see boundary/boundary.cu).
int b300k_boundary(const void* y, const void* residual, const float* post, const float* comb, const float* pre,
                   const void* weight, void* out_residual, void* out_x, void* out_q, void* out_scale, int rows, float eps,
                   int scale_layout, int cluster, int blocks, int pdl, void* stream);

// K2: m = (W vec R) * rsqrt(mean((vec R)^2)+eps) ; pre', post', C' by sigmoid and 20 Sinkhorn steps (stats/stats.cu).
int b300k_stats(const void* residual, const float* weight, const float* scale, const float* base, float* out_pre,
                float* out_post, float* out_comb, void* workspace, int rows, float rms_eps, float hc_eps, int iterations,
                int blocks, int pdl, void* stream);
int64_t b300k_stats_workspace(int rows);

// K4: logits = x Wg^T ; s = sqrt(softplus) ; top-6 of s+bias ; weights ; packed ids (gate/gate.cu).
int b300k_gate(const void* x, const void* weight, const float* bias, const int32_t* valid_rows, float* out_weights,
               int32_t* out_ids, int32_t* out_packed, float* out_logits, void* workspace, int rows, float route_scale, int blocks,
               int pdl, void* stream);
int64_t b300k_gate_workspace(int rows);

// K3: q rmsnorm (+fp8) beside kv rmsnorm + rope + paged insert (qkv/qkv.cu).
int b300k_qkv(const void* qkv, const void* q_weight, const void* kv_weight, const float* cos_sin, const void* positions,
              const int32_t* slots, void* out_q, void* out_q8, void* out_q_scale, void* cache, int64_t cache_slots, int rows,
              float eps, int positions_are_64, int layout, int page_bits, int64_t page_bytes, int64_t max_position,
              int scale_layout, int blocks, int pdl, void* stream);

// K3b: K3 with qkv = x [T,5120] W^T [1792,5120] before it, T <= 8; scales null: W is bf16 (qkvproj/qkvproj.cu).
int b300k_qkvproj(const void* x, const void* weight, const void* scales, const void* q_weight, const void* kv_weight,
                  const float* cos_sin, const void* positions, const int32_t* slots, void* out_q, void* out_q8, void* out_q_scale,
                  void* cache, void* workspace, int64_t cache_slots, int rows, float eps, int positions_are_64, int layout,
                  int page_bits, int64_t page_bytes, int64_t max_position, int scale_layout, int blocks, int pdl, void* stream);
int64_t b300k_qkvproj_workspace(int rows);

// K5: inverse rope, wo_a [groups,1024,4096], y as bf16 and/or E4M3, T <= 8; scales null: W is bf16 (oproj/oproj.cu).
int b300k_oproj(const void* o, const void* weight, const void* scales, const float* cos_sin, const void* positions, void* out_y,
                void* out_y8, void* out_scale, int rows, int groups, int positions_are_64, int64_t max_position, int scale_layout,
                int blocks, int pdl, void* stream);

// K6: y [T,N] = x [T,K] W^T, W in E4M3 with 32x32 UE8M0 blocks, T <= 8 (gemv/gemv.cu).
int b300k_gemv(const void* x, const void* codes, const void* scales, void* y, int rows, int n, int k, int blocks, int pdl,
               void* stream);

// K6h: the argmax of x [T,5120] W^T [V,5120], T <= 8; scales null: W is bf16, else MXFP8 (head/head.cu).
int b300k_head(const void* x, const void* weight, const void* scales, int32_t* out_ids, float* out_values, void* out_logits,
               void* workspace, int rows, int vocabulary, int blocks, int pdl, void* stream);
int64_t b300k_head_workspace(int rows);

// The agreement hash: folds a step into state [66] uint64, T <= 1024, width <= 64 (agree/agree.cu).
int b300k_agree(const uint64_t* request_ids, const int32_t* positions, const int32_t* ids, const int32_t* accept,
                const int32_t* seq_lens, const uint64_t* page_delta, uint64_t* state, int rows, int width, int pdl, void* stream);

// The matched-draw sampler: ids from logits [T,V] bf16, T <= 64 (draw/draw.cu).
int b300k_draw(const void* logits, const float* inverse_temperature, const float* top_p, const int32_t* top_k, const int32_t* nonce,
               const int32_t* position, const int32_t* step, int32_t* out_ids, int rows, int vocabulary, uint64_t seed, uint64_t tag,
               int pdl, void* stream);

#ifdef __cplusplus
}
#endif
