"""`qcg-pm bench`: how fast a pilot is here."""

from __future__ import annotations

import json
import os
import re
import tempfile
from functools import partial
from pathlib import Path

import click
import msgspec

from qcg.pilotjob.api.errors import QCGPJMAError
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.measuring import SAMPLES, SLEEP, Figures, measure
from qcg.pilotjob.cli.refusing import Refusal
from qcg.pilotjob.cli.saying import many, say, tell
from qcg.pilotjob.cli.showing import show_table


@click.command("bench")
@click.option("--nodes", help="Pretended nodes instead of this machine or allocation: 4, n1:2, 4,2,2 or n1:4,n2:4.")
@click.option(
    "--pretend",
    metavar="NODESxCORES",
    help="So many nodes of so many cores, and no processes: jobs end at once. What the pilot itself can do.",
)
@click.option("--wd", default=".", show_default=True, help="Where the files of the jobs are made, and removed again.")
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="How long, about.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(nodes: str | None, pretend: str | None, wd: str, seconds: float, as_json: bool) -> None:
    """Measure how fast a pilot is on this machine or allocation.

    Jobs that do nothing and jobs that sleep are run; nothing is left of them.
    """
    options = _node_options(nodes, pretend)
    try:
        with tempfile.TemporaryDirectory(prefix="qcg-pm-bench-", dir=wd) as directory:
            figures = measure(partial(_start, directory, options), seconds, tell)
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        raise Refusal(f"nothing can be made in {wd}: {os.strerror(error.errno or 0)}; choose another --wd") from None
    if as_json:
        say(json.dumps(msgspec.structs.asdict(figures), indent=2))
    else:
        _show(figures, pretended=pretend is not None)


def _node_options(nodes: str | None, pretend: str | None) -> list[str]:
    if pretend is None:
        return ["--nodes", nodes] if nodes else []
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", pretend)
    if nodes or match is None or not all(map(int, match.groups())):
        raise click.UsageError("--pretend wants NODESxCORES, such as 1000x128, and no --nodes beside it")
    count, cores = map(int, match.groups())
    return ["--pretend", "--nodes", ",".join([str(cores)] * count)]


def _start(directory: str, options: list[str]) -> LocalManager:
    return LocalManager(["--wd", str(Path(directory).resolve()), "--log", "warning", *options])


def _show(figures: Figures, *, pretended: bool) -> None:
    places = f"{many(figures.cores, 'core')} on {many(figures.nodes, 'node')}"
    say(f"{places}, pretended, without processes" if pretended else places)
    lost = 100 * (figures.real / figures.ideal - 1)
    rows = [
        ("start", f"{figures.start:.2f} s", "from the start of the service to its first job"),
        ("latency", f"{1000 * figures.latency:.1f} ms", f"from submit to start, median of {SAMPLES}"),
        ("", f"{1000 * figures.latency_99:.1f} ms", "99 of 100 are not above"),
        ("dispatch", f"{figures.separate:,.0f} jobs/s", f"{figures.dispatch_jobs:,} jobs that do nothing"),
        ("", f"{figures.iterated:,.0f} jobs/s", "the same as one iterated job"),
        (
            "overhead",
            f"{lost:.1f}%",
            f"{figures.overhead_jobs:,} jobs of {SLEEP:g} s, {figures.overhead_at_a_time:,} at a time, took"
            f" {figures.real:.2f} s instead of {figures.ideal:g} s",
        ),
    ]
    show_table(["what", "figure", "how"], rows, right=["figure"])
