"""Slurm: everything in the project that knows it.

`system.py` implements the interface of `cluster/base.py` with the other modules, of which those that parse are pure.
May import `cluster/base.py` and its neighbours, `launch`, `core` and `common`.
"""
