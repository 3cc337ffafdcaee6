"""One file a request: what it does and what it answers."""
