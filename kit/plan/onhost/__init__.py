"""Scripts that boot units run on a host: one file each, standard library only, Python 3.9. Sent as they are."""
