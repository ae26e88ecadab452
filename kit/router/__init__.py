"""Who gets traffic: routers, the membership in each, and the decisions to join, leave and come back."""
