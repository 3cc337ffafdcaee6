"""Remote hosts that are reached with OpenSSH and rsync alone: the near side.

The far side is `host/remote/`, which travels as one zipapp.
May import the modules beside it, `cluster` and lower layers.
"""
