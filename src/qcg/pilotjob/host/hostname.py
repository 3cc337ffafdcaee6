"""The name of this host, as text that can be written anywhere."""

import os


def host_name() -> str:
    """The kernel takes any bytes for a host name. What is not UTF-8 becomes underscores."""
    name = os.uname().nodename.encode("utf-8", "surrogateescape")
    return name.decode("utf-8", "replace").replace("\ufffd", "_")
