"""The names of version 0.2, on today's client."""
