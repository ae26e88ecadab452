"""K6: a skinny GEMM over block-scaled E4M3 weights."""
