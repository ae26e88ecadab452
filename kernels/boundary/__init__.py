"""K1: the boundary between two sublayers."""
