"""Executors: they carry launches, kills and signals to hosts, and report what happens there.

`base.py` is the interface, which `agents.py` and `ssh/` implement; `composite.py` joins several executors.
May import `cluster` and lower layers.
"""
