// Error texts and device query of the plain C interface (see api.h).
#include "api.h"

#include <cuda_runtime.h>

extern "C" const char* b300k_error_text(int code) {
  switch (code) {
    case 0: return "ok";
    case B300K_BAD_ROWS: return "rows below 0 or over the operator's limit";
    case B300K_BAD_LAUNCH: return "a launch parameter outside what the kernel was built for";
    case B300K_MISALIGNED: return "a pointer that is not 16-byte aligned";
    case B300K_NULL: return "a required pointer is null";
    default: return code > 0 ? cudaGetErrorString(static_cast<cudaError_t>(code)) : "unknown code";
  }
}

extern "C" int b300k_device(int* capability, int* sm_count) {
  int device = 0, major = 0, minor = 0, sms = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  *capability = 10 * major + minor;
  *sm_count = sms;
  return int(error);
}
