"""Hosts that are listed in a file and reached by `ssh`: `--resources hostfile:FILE`.

For machines without a batch system. May import the modules beside it, `launch`, `core` and `description`.
"""
