"""What a simulated host runs on: namespaces, control groups, the process that keeps it up."""
