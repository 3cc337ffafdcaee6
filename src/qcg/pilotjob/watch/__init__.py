"""Access to a live, ended or crashed run for displays. The terminal view and the dashboard are built on it.

May import `api` and lower layers. Nothing here costs the manager more than one summary a second.
"""
