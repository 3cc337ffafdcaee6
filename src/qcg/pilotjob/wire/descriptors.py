"""How many files and connections this process may have open.

Whoever can reach a port can take descriptors from this process until it has sent them away. So it takes as many as it
may have, and leaves its jobs the limit that it was given: some programs do not work with a large one.
"""

from __future__ import annotations

import resource

GIVEN, MOST = resource.getrlimit(resource.RLIMIT_NOFILE)


def take_all() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
