"""The two routes to a B300 that runs the megakernel, and the slot list that the upstream one needs. See docs/patches.md."""
