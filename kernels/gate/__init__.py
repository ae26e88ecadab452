"""K4: the router."""
