"""Kernels: what needs neither a GPU nor torch."""
