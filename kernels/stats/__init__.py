"""K2: the stream statistics."""
