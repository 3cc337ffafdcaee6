"""Hosts that are listed in a file and reached by `ssh`: `--resources hostfile:FILE`.

For machines without a batch system. May import `cluster/base.py` and its neighbours, `launch` and `core`.
"""
