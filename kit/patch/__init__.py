"""Patches that are declared and checked: edits by meaning, found through a project's public contract. See docs/patches.md."""
