"""Files with jobs: arrays of job descriptions, and request files."""

from __future__ import annotations

import json
import sys
from typing import Any

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.host.safe_open import read_input

Submission = list[dict[str, Any]]


def read_submissions(file: str, hint: str = "") -> list[Submission]:
    """The submissions of a file, in order. `hint`: what a user may have meant instead of a file."""
    further = f"; {hint}" if hint else ""
    try:
        content = json.loads(sys.stdin.buffer.read() if file == "-" else read_input(file))
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror}{further}") from None
    except (ValueError, RecursionError) as error:
        if file == "-" and hint:
            further = "; for one command a line, write --commands -"
        raise Refusal(f"{file} {InvalidJson.because(error)}{further}") from None
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise Refusal(f"{file} holds no jobs; it must be an array of job descriptions, or a request file")
    if not any("request" in entry for entry in entries):
        return [entries]
    submissions = []
    for number, entry in enumerate(entries, 1):
        if entry.get("request") == "submit":
            submissions.append(entry.get("jobs", []))
        else:
            echo_err(f"request {number} of {file} is no submit and is left out")
    return submissions
