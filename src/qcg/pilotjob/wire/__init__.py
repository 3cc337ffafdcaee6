"""ZeroMQ sockets with CURVE, inside an event loop: what interfaces and executors talk through."""
