"""K6h: the language model head with its argmax."""
