"""What runs on a host: plain Python, read-only."""
