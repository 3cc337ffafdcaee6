"""`qcg-pm bench`: measure the speed of a manager on this machine."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from qcg.pilotjob.agent.pidfile import is_alive, read_agent_pid, signal_agent
from qcg.pilotjob.api.errors import QCGPJMAError, ServiceError
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.bench_runs import SAMPLES, SLEEP, CannotWrite, Figures, measure, raise_cannot_write
from qcg.pilotjob.cli.console import echo, echo_err
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.cli.options import CORES_HELP, NODES_HELP, resolve_cores
from qcg.pilotjob.cli.param_types import Number, Whole
from qcg.pilotjob.cli.signals import exiting_on_signals, signals_deferred
from qcg.pilotjob.cli.tables import show_table
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.local.virtual_nodes import MOST_CORES, MOST_IN_ALL, parse_nodes
from qcg.pilotjob.common.wording import pluralize

MOST_NODES = 10_000
EXIT_TIMEOUT = 5.0
"""Seconds for the manager, and then its agent, to end before it is killed: its files are not needed."""
POLL_INTERVAL = 0.05
LINGER = 10
"""Seconds that agents on other nodes wait for their manager: enough for a busy manager to keep them."""


@click.command("bench")
@click.option("--cores", type=Whole(1, MOST_CORES), metavar="N", help=CORES_HELP)
@click.option("--nodes", help=NODES_HELP)
@click.option(
    "--pretend",
    metavar="NODESxCORES",
    help="Virtual nodes without processes: jobs end at once. Measures the manager alone.",
)
@click.option("--wd", default=".", show_default=True, help="Directory for temporary files of the jobs.")
@click.option("--seconds", type=Number(min=1), default=20.0, show_default=True, help="Approximate duration.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(pretend: str | None, wd: str, seconds: float, as_json: bool, **given: Any) -> None:
    """Measure the speed of a manager on this machine or allocation.

    Runs jobs that do nothing and jobs that sleep, and removes their files at the end.
    """
    resolve_cores(given)
    options = _node_options(given["nodes"], pretend)
    try:
        with exiting_on_signals(), _directory(wd) as directory:
            figures = measure(partial(_start, directory, options), seconds, echo_err)
    except CannotWrite as error:
        raise Refusal(
            f"the pilot that was measured could not write in {Path(wd).absolute()}: {error}; measure in another"
            " directory with --wd, or for fewer --seconds"
        ) from None
    except QCGPJMAError as error:
        raise Refusal(str(error)) from None
    if as_json:
        echo(json.dumps(msgspec.structs.asdict(figures), indent=2))
    else:
        _show(figures, virtual=pretend is not None)


def _node_options(nodes: str | None, pretend: str | None) -> list[str]:
    if pretend is not None and nodes is not None:
        raise Refusal("--pretend makes up nodes of its own: leave out --nodes, or --pretend")
    if pretend is not None:
        count, cores = _parse_pretend(pretend)
        return ["--pretend", "--nodes", ",".join([str(cores)] * count)]
    if nodes is None:
        return []
    try:
        parse_nodes(nodes)
    except ClusterError as error:
        raise Refusal(str(error)) from None
    return ["--nodes", nodes]


def _parse_pretend(given: str) -> tuple[int, int]:
    match = re.fullmatch("([0-9]{1,9})x([0-9]{1,9})", given)
    if match is None:
        raise Refusal(
            f"--pretend: {given[:100]!r} is not NODESxCORES; write 1000x128 for 1,000 nodes of 128 cores each"
        )
    nodes, cores = map(int, match.groups())
    if not nodes or not cores:
        raise Refusal(f"--pretend: {given} has no {'cores' if nodes else 'nodes'}; give it at least 1x1")
    if nodes > MOST_NODES or cores > MOST_CORES or nodes * cores > MOST_IN_ALL:
        raise Refusal(
            f"--pretend: {given} is too much; it can be {MOST_NODES:,} nodes and {MOST_IN_ALL:,} cores in all, at most,"
            f" and {MOST_CORES:,} cores on one node"
        )
    return nodes, cores


@contextmanager
def _directory(wd: str) -> Iterator[str]:
    """A temporary directory for the measurement."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="qcg-pm-bench-", dir=wd)
    except OSError as error:
        raise Refusal(f"nothing can be made in {wd}: {os.strerror(error.errno or 0)}; choose another --wd") from None
    with directory as name:
        yield name


class _BenchManager(LocalManager):
    """A manager that ends within seconds, also when it cannot write its files, because nobody needs them."""

    def finish(self, cancel: bool = False) -> None:
        with signals_deferred():
            # No warning about jobs that are left: their run directory is removed.
            logging.getLogger("qcg.pilotjob.api").addHandler(logging.NullHandler())
            if self.qcgpm_process.poll() is None:
                self.qcgpm_process.terminate()
            try:
                self.qcgpm_process.wait(EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.qcgpm_process.kill()
            super().finish(cancel)
            if self.run_dir is not None:
                _end_agents(self.run_dir)

    def __exit__(self, *exception: object) -> None:
        """Finish also after a signal: the jobs of a measurement are never resumed."""
        self.finish()


def _end_agents(run_dir: Path) -> None:
    """End agents on this machine that the manager has left, before their files are removed."""
    names = [path.stem.removeprefix("agent-") for path in run_dir.glob("agent-*.json")]
    left = [found for name in names if (found := read_agent_pid(run_dir, name)) is not None and is_alive(found)]
    for agent in left:
        signal_agent(agent, signal.SIGTERM)
        signal_agent(agent, signal.SIGINT)  # the second signal ends it even when its disk is full
    deadline = time.monotonic() + EXIT_TIMEOUT
    while any(map(is_alive, left)) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
    for agent in left:
        signal_agent(agent, signal.SIGKILL)


def _start(directory: str, options: list[str]) -> LocalManager:
    given = ["--wd", str(Path(directory).resolve()), "--log", "warning", "--agent-linger", str(LINGER), *options]
    manager: _BenchManager | None = None
    try:
        with signals_deferred():
            manager = _BenchManager(given, {"log_file": ""})
    except ServiceError as error:
        raise_cannot_write(error)
        raise
    except SystemExit:
        if manager is not None:
            manager.finish()
        raise
    return manager


def _show(figures: Figures, *, virtual: bool) -> None:
    places = f"{pluralize(figures.cores, 'core')} on {pluralize(figures.nodes, 'node')}"
    echo(f"{places}, {'virtual, without processes' if virtual else _starter()}")
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


def _starter() -> str:
    """Whether the compiled part is installed, as a phrase."""
    try:
        import_module("qcg.pilotjob.agent._relay")
    except ImportError:
        return "without the compiled part that starts short jobs faster (see README)"
    return "with the compiled part that starts short jobs faster"
