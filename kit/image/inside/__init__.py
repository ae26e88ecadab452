"""What runs inside an image while it is built, or in the finished one: plain Python 3.11, nothing to install."""
