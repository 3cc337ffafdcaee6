"""Benchmarks against the limit of the machine, target values and peers: `make bench`, `python -m bench NAME`."""
