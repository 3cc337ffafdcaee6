"""The API names of version 0.2, on the current client."""
