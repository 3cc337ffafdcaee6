"""The job host: starts, watches and ends jobs on one machine, and records them in its ledger.

It runs on compute nodes, where Python may be old, so it uses the standard library only and Python 3.6 syntax.
It imports no other package of this project.
"""
