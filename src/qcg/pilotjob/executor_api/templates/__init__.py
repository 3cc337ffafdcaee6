"""Templates of job descriptions for `QCGPJExecutor`.

It imports no other package of this project.
"""
