"""A run as displays see it: live, ended or crashed. The terminal view and the dashboard are built on it.

May import `api` and lower layers. Nothing here costs the manager more than one summary a second.
"""
