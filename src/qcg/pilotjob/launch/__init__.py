"""Execution models: a job description and a grant become a command, an environment and files.

Pure. May import `description`, `core`, `common/environment.py` and `host/records.py`.
"""
