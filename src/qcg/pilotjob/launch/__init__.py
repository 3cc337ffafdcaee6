"""Execution models: a description and a grant become a command, an environment and files. Pure."""
