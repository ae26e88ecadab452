"""Stand-ins for NVIDIA's and Docker's packages."""
