"""ZeroMQ connections: listening sockets with limits, CURVE keys, heartbeat intervals, and the contact file.

Managers, agents and clients use it; it knows nothing of the messages that they send.
May import `host`.
"""
