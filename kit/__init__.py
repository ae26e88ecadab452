"""Provision, verify and explain B300 nodes that serve DeepSeek-V4.1-Flash. Start reading at :mod:`kit.flow`."""
