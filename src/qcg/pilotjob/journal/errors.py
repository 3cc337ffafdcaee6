"""Errors of the registry."""

from __future__ import annotations


class JournalError(Exception):
    """The registry on disk could not be opened, read or written; the message names the file, the cause and a remedy."""


class RegistryInUseError(JournalError):
    """Another manager has this registry open."""
