"""Handlers: one file per request.

May import the modules beside it, `manager` and lower layers; they do not know which interface a request came from.
"""
