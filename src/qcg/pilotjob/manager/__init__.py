"""The manager process: engine, commits, acknowledgements, observers, placement, resume and shutdown of a run."""
