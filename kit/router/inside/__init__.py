"""Runs in the router's own Python on a host, not here: the standard library and sglang-router."""
