"""Executors: they carry launches, kills and signals to hosts, and report starts and ends of attempts.

`base.py` is the interface, which `agents.py` and `ssh/` implement; `composite.py` joins several executors.
May import `cluster` and lower layers.
"""
