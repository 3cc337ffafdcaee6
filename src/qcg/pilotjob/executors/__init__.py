"""Carry effects to hosts."""
