"""Parameter files: CSV and JSON-lines files with one row for each iteration of a job.

A file is scanned once, at submission. An index with the offset and a checksum of each row stays in the run directory;
rows are read one at a time when their iterations start.
"""
