"""The command line: one file per command in `commands/`, and helpers shared by commands."""
