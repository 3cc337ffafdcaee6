"""Executors: they carry launches, kills and signals to hosts, and report what happens there.

`base.py` is the interface; `agents.py` implements it with agents, `composite.py` joins several executors. May import
common, host, description, core, launch, wire, journal, agent and cluster.
"""
