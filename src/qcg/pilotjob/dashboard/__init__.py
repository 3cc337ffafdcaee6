"""The dashboard: a web page about a run, served by a process of its own, and the same page as one file.

It may import `watch` and everything below. Only the standard library serves it, and all its assets are in this package.
"""
