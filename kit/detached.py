"""How a child says that it outlives the run that started it."""

DETACHED = "B300KIT_DETACHED"
"""In its environment when it does, on purpose (a simulated host): an interrupt stops the others."""
