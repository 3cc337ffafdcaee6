"""Allocations for a run: the batch script, its submission, and what goes on inside."""
