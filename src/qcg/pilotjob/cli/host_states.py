"""States of remote hosts, as commands show them."""

from __future__ import annotations

from typing import Any

IN_WORDS = {"unused": "not used yet"}
"""States where the word that is shown differs."""


def state_in_words(entry: dict[str, Any]) -> str:
    """The state of a host, by its entry of the reply to `hosts` or `resourcesInfo`."""
    since = f" since {entry['since'][:19]}" if entry["state"] == "unreachable" and "since" in entry else ""
    return f"{IN_WORDS.get(entry['state'], entry['state'])}{since}"
