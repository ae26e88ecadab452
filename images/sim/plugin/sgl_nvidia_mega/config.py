"""What the kernels were built for."""

RESIDENT_BLOCKS = 152
MAX_ROWS = 384
