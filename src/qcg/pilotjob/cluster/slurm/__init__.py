"""Slurm: all code that depends on it.

`system.py` implements the interface of `cluster/base.py` with the other modules. Its parsers are pure functions.
May import the modules beside it, `launch`, `core`, `description` and `common`.
"""
