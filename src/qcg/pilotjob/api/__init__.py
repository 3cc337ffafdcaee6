"""The Python client: submit jobs to a manager, wait for them, ask about them."""
