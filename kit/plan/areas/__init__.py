"""The plan, one module an area of the host. Each offers ``steps(spec, lock, facts)``; kit.plan.make puts them in order."""
