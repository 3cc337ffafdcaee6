"""Starts, watches and ends jobs on one machine. Standard library only, CPython 3.6 and later."""
