"""Sentences at the bottom of the screen."""

from __future__ import annotations

from msgspec.structs import replace

from qcg.pilotjob.top.model import NOTICE_SECONDS, Model, Notice


def with_notice(model: Model, text: str, *, bad: bool) -> Model:
    """The model with a notice. `bad`: something was refused or failed."""
    return replace(model, notice=Notice(text, bad, model.now + NOTICE_SECONDS))
