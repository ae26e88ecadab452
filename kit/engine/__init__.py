"""What is served: engine profiles, the exact command they mean, and whether the installed engine would take it."""
