"""Handlers: one file per request."""
