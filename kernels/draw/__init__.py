"""The matched-draw sampler: the same token for the same request and position, wherever it is drawn."""
