"""Measures the pilot against the limit of the machine, its bars and its peers: `make bench`, `python -m bench NAME`."""
