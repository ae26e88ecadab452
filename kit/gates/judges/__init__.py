"""One module a gate: what it looks at (evidence), what it is held to (limits), and a pure ``judge`` of the two."""
