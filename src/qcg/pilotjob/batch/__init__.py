"""Allocations for a run: the batch script, its submission, following it, and the run inside each allocation.

Works on `cluster/base.py` alone, so that it knows no batch system by name.
May import `runs` and lower layers.
"""
