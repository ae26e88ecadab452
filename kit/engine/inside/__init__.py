"""Runs in the engine's own Python, not here: the standard library and SGLang, nothing of this kit."""
