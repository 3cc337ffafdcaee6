"""Templates of job descriptions for `QCGPJExecutor`."""
