"""Parameter files: CSV and JSON-lines files with one row for each iteration of a job.

A file is scanned once, at submission. The run directory keeps a copy of it, and an index with the offset and a checksum
of each row; rows are read from the copy one at a time when their iterations start.

May import `description` and `host`.
"""
