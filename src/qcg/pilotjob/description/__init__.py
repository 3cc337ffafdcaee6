"""What a job is: forms, validation, variables, iterations. Pure."""
