"""`qcg-pm report --html`: the page of the dashboard in one file, with its data inside."""

from __future__ import annotations

from pathlib import Path

import msgspec

from qcg.pilotjob.common.printable import printable_json
from qcg.pilotjob.dashboard.page_bundle import bundle_page
from qcg.pilotjob.dashboard.page_files import load_page
from qcg.pilotjob.dashboard.report_data import read_report_data
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.watch.open import NoRun, open_run


def html_report(directory: Path) -> bytes:
    """The page about a run. Raises ReportError."""
    try:
        run = open_run(directory, whole=True)
    except NoRun as error:
        raise ReportError(str(error)) from None
    try:
        data = msgspec.json.encode(read_report_data(run))
    except JournalError as error:
        raise ReportError(str(error)) from error
    finally:
        run.close()
    return bundle_page(load_page(), printable_json(data))
