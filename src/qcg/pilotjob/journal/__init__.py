"""The permanent registry of a run: one SQLite file, its metadata, and queries on it.

May import `common`, `host`, `description` and `core`.
"""
