"""Helpers for all packages: options of a run, exit codes, environment variables, logs, clocks, safe text.

May import `host` alone; every other package may import it.
"""
