"""One file per command; the file is named after the command."""
