"""A run as displays see it: live, ended or crashed. The terminal view and the dashboard are built on it.

It may import the Python client and everything below. Nothing here costs the manager more than one summary a second.
"""
