"""Answers to requests."""

from __future__ import annotations

from typing import Any

import msgspec


class ManagerEnding(Exception):
    """A shutdown was requested before the request could be carried out; the message is for the client."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request; code 0 means success."""

    code: int = 0
    message: str | None = None
    data: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        reply: dict[str, Any] = {"code": self.code}
        if self.message is not None:
            reply["message"] = self.message
        if self.data is not None:
            reply["data"] = self.data
        return reply


def ok(data: dict[str, Any] | None = None, message: str | None = None) -> Answer:
    return Answer(0, message, data)


def error(message: str) -> Answer:
    return Answer(1, message)
