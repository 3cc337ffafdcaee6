"""The files that configure remote hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE_FILE = Path("/etc/qcg-pm/hosts.toml")


def user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base) / "qcg-pm" / "hosts.toml"


def may_have_hosts(given: str | None, environ: Mapping[str, str], site: Path = SITE_FILE) -> bool:
    """Whether one of the files exists. `given`: the file of `--hosts`."""
    return given is not None or any(os.path.lexists(path) for path in (site, user_file(environ)))
