"""Helpers that any package may use: options, logs, clocks, printable text, crash reports."""
