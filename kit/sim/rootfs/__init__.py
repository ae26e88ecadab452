"""The root file system of a simulated host: Debian, the layers over it, and what is one host's own."""
