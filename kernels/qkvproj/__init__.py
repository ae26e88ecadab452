"""K3b: wqkv_a with K3 behind it."""
