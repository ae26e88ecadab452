"""Gathers evidence from a running engine and its host. Edges: HTTP, ssh, /proc. Nothing here says passed or failed."""
