"""The interface of templates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class QCGPJTemplate(ABC):
    """The text of a job description in the standard form, written as a Python dictionary with `${placeholders}`."""

    @staticmethod
    @abstractmethod
    def template() -> str | tuple[str, dict[str, Any]]:
        """The text, or the text and values for placeholders that may be left out."""
