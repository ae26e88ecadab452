"""K5: inverse rope, wo_a, quantisation."""
