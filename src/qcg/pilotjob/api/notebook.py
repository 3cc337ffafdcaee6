"""The table that a notebook shows for a manager; it is kept up to date where ipywidgets is installed."""

from __future__ import annotations

import sys
import threading
import weakref
from importlib.util import find_spec
from typing import Any

from qcg.pilotjob.api.errors import QCGPJMAError
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.report.run_summary import RunSummary

REFRESH_SECONDS = 1.0
PATIENCE = 5.0
"""Seconds that the manager has to answer: the notebook is blocked meanwhile."""
MOST_ERRORS = 3
"""Errors one after another after which a table is not updated any more."""


def is_notebook() -> bool:
    """Whether this program is a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def has_widgets() -> bool:
    """Whether notebooks can show widgets that update themselves: the extra `notebook` is installed."""
    return find_spec("ipywidgets") is not None


class NotebookDisplay:
    """An object that notebooks show as the summary of a run."""

    _table: Any = None
    """The widget that was shown, and is kept up to date."""

    def _summary_soon(self, patience: float) -> RunSummary:
        """The summary of the run. Raises QCGPJMAError when there is none within `patience` seconds."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return _shown(self)[1]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Representations for IPython: text, a table, and in notebooks with ipywidgets a table that updates itself."""
        text, html = _shown(self)
        bundle: dict[str, Any] = {"text/plain": text, "text/html": html}
        if is_notebook() and has_widgets():
            if self._table is None:
                from ipywidgets import HTML

                self._table = HTML(html)
                threading.Thread(
                    target=_keep_up_to_date, args=(weakref.ref(self), self._table), name="notebook-table", daemon=True
                ).start()
            return {**self._table._repr_mimebundle_(), **bundle}
        return bundle


def _shown(shown: NotebookDisplay) -> tuple[str, str]:
    """The summary as text and as HTML, or why there is none."""
    from html import escape  # here: commands show no HTML

    from qcg.pilotjob.report.summary_html import summary_html, summary_text

    try:
        summary = shown._summary_soon(PATIENCE)
    except QCGPJMAError as error:
        text = printable(f"{type(shown).__name__}: {error}")
        return text, f"<div>{escape(text)}</div>"
    return summary_text(summary), summary_html(summary)


def _keep_up_to_date(reference: weakref.ref[NotebookDisplay], table: Any) -> None:
    """Update a table until its manager is gone. Does not keep the object alive, which may own the manager."""
    from html import escape

    from qcg.pilotjob.report.summary_html import summary_html

    pause = threading.Event()
    errors = 0
    while errors < MOST_ERRORS:
        pause.wait(REFRESH_SECONDS)
        shown = reference()
        if shown is None:
            return
        try:
            table.value = summary_html(shown._summary_soon(PATIENCE))
            errors = 0
        except QCGPJMAError as error:
            errors += 1
            if errors == MOST_ERRORS:
                table.value += f"<div>{escape(printable(str(error)))}</div>"
                shown._table = None  # the next time it is shown, it is a new one
        del shown
