"""What can go wrong with the registry."""

from __future__ import annotations


class JournalError(Exception):
    """The registry on disk could not be opened, read or written; the text says which file, why, and what to do."""


class RegistryInUseError(JournalError):
    """Another manager has this registry open."""
