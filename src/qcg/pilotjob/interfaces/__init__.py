"""How requests come in; one handler a request."""
