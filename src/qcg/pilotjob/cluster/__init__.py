"""Where nodes come from: batch systems, hosts listed in a file, or this machine.

`base.py` is the interface that every source of nodes implements, `registry.py` the list of them; each has a package.
May import `agent`, `wire`, `launch`, `core`, `description`, `common` and `host`.
"""
