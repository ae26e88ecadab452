"""Operators in the order of a layer, as one graph."""
