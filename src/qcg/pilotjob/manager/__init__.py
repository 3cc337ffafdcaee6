"""The manager process: engine, commit loop, observers, placement, preparation, resume and shutdown of a run.

It gets its interfaces through `ports.py`, and reaches hosts through an executor.
May import the packages of lower layers.
"""
