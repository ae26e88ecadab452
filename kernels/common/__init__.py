"""What every operation's folder shares: device helpers, the library loader, checks, roundings, comparisons."""
