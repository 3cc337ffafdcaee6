"""The agent: a process on each node that runs a job host and exchanges messages with the manager.

It continues without a manager, and ends its jobs when the manager may take the node for lost.
May import `host`, `common` and `wire`; managers import its protocol and its pid files.
"""
