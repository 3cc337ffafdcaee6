"""The scheduler: job registry, queue, resources and state changes, as a pure state machine.

`Core.handle(event, now)` returns effects; nothing here reads a clock, a file or a socket.
May import `description`, `host/records.py` and `common/similarity.py`.
"""
