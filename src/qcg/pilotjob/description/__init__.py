"""Job descriptions and requests: input forms, validation, iterations, variables and the JSON Schema.

`parse.parse_jobs` turns user input into `model.JobDescription`, or raises an error that lists every problem.
Pure, like `core`. May import `common/similarity.py`.
"""
