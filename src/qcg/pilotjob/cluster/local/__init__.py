"""This machine as a cluster: its real cores, or virtual nodes.

May import `cluster/errors.py`, `core`, `description` and `host`.
"""
