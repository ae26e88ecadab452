"""The commands, a module a group; ``tasks.py`` names them. Each says what it takes and calls what does it.

Imports stay inside the functions: ``invoke --list`` must answer at once.
"""
