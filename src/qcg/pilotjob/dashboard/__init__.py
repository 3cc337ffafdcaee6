"""The dashboard: a web page about a run, served by a process of its own, and the same page as one file.

May import `watch` and lower layers. Only the standard library serves it, and all its assets are in this package.
"""
