"""Remembers: the permanent registry on disk."""
