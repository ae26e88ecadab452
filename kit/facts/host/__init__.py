"""What runs on the host: Python's own library only, Python 3.9 or later, read-only. Sent by ``kit.facts.probe``."""
