"""The Python client: submit jobs to a manager, wait for them, query them.

May import everything above it except manager, interfaces and cli; importing it must stay fast.
"""
