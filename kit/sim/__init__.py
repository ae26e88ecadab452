"""Simulated hosts: real systemd, sshd, apt and sudo; only the hardware they lack is simulated, below the code under test.

Nothing in the product imports this package except the ``sim.*`` and ``demo`` tasks.
"""
