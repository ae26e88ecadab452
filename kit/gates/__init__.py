"""What a node must pass before it takes traffic: pure judges over recorded evidence, and runners that gather it."""
