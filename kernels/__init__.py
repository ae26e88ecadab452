"""Fused decode kernels for DeepSeek-V4.1-Flash: one folder an operation, a plain C library, torch custom ops over it."""
