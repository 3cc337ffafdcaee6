"""Executors in the sense of `concurrent.futures`: for jobs made from templates, and for Python functions."""
