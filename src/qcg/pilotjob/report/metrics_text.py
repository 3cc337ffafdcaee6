"""Metrics of a run as OpenMetrics text.

The text is also valid in the older text format of Prometheus, which the textfile collector of its node exporter reads:
no sample has a time, and only the types `gauge` and `counter` occur. The number of series is bounded, whatever the
number of jobs and nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from qcg.pilotjob import __version__
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.run_summary import RunSummary

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MOST_NODE_SERIES = 32
"""Number of nodes up to which each has series of its own."""
LONGEST_LABEL = 256
"""Characters of a label's value; the rest is cut off."""

NODE_STATES = ("ready", "away", "lost", "drained")


class _Family(Struct, frozen=True):
    """One metric."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Mapping[str, float]
    """Values by the value of `label`."""
    label: str = ""
    """The label besides `run`; without one there is one sample."""


def metrics_text(summary: RunSummary) -> str:
    """The metrics of a run, from its summary."""
    lines: list[str] = []
    for family in _families(summary):
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        suffix = "_total" if family.kind == "counter" else ""
        # Names that are equal after the cut share a series: readers reject a text with duplicate series.
        values: dict[str, float] = {}
        for value_of_label, value in family.samples.items():
            labels = {"run": summary.run, family.label: value_of_label} if family.label else {"run": summary.run}
            text = ",".join(f'{name}="{_escape(given)}"' for name, given in labels.items())
            values[text] = values.get(text, 0.0) + value
        lines += [f"{family.name}{suffix}{{{text}}} {_number(value)}" for text, value in values.items()]
    return "\n".join([*lines, "# EOF\n"])


def _families(summary: RunSummary) -> Iterable[_Family]:
    version = "Always 1; the label has the version of the program."
    yield _Family("qcg_pm_build_version", "gauge", version, {__version__: 1.0}, "version")
    yield _single("qcg_pm_manager_alive", "1 if a manager of the run is alive.", summary.alive)
    yield _single("qcg_pm_stalled", "1 if the registry cannot be written, so that nothing is started.", summary.stalled)
    yield _by_state("qcg_pm_jobs", "Jobs by state.", summary.jobs)
    yield _by_state("qcg_pm_iterations", "Iterations by state.", summary.iterations)
    yield _by_state("qcg_pm_units", "Iterations, and jobs without iterations, by state.", summary.units)
    yield _single("qcg_pm_running_attempts", "Attempts that run.", summary.running)
    yield _single("qcg_pm_cores", "Cores of the run.", summary.cores)
    yield _single("qcg_pm_cores_used", "Cores granted to attempts.", summary.used)
    yield _single("qcg_pm_gpus", "GPUs of the run.", summary.gpus)
    yield _single("qcg_pm_gpus_used", "GPUs granted to attempts.", summary.gpus_used)
    yield from _nodes(summary)
    yield from _totals(summary)
    yield from _times(summary)


def _nodes(summary: RunSummary) -> Iterable[_Family]:
    states = Counter(node.state for node in summary.nodes)
    states["ready"] += summary.more_nodes
    counts = {state: float(states[state]) for state in NODE_STATES}
    yield _Family("qcg_pm_nodes", "gauge", "Nodes by state.", counts, "state")
    if summary.nodes and len(summary.nodes) + summary.more_nodes <= MOST_NODE_SERIES:
        cores = {node.name: float(node.cores) for node in summary.nodes}
        used = {node.name: float(node.used) for node in summary.nodes}
        yield _Family("qcg_pm_node_cores", "gauge", "Cores of each node, in runs with few nodes.", cores, "node")
        yield _Family("qcg_pm_node_cores_used", "gauge", "Cores of each node granted to attempts.", used, "node")


def _totals(summary: RunSummary) -> Iterable[_Family]:
    history = summary.history
    if history is None:
        return
    for name, help_text, bins in (
        ("qcg_pm_attempt_starts", "Attempts that were started.", history.starts),
        ("qcg_pm_attempt_ends", "Attempts that have ended.", history.ends),
        ("qcg_pm_attempt_failures", "Attempts that have failed.", history.failures),
        ("qcg_pm_busy_core_seconds", "Core seconds that were granted to attempts.", history.busy),
        ("qcg_pm_core_seconds", "Core seconds that the run had.", history.cores),
    ):
        yield _Family(name, "counter", help_text, {"": float(sum(bins))})


def _times(summary: RunSummary) -> Iterable[_Family]:
    times = {
        "started": ("Time of the first submission.", summary.started),
        "ended": ("Time of the last end, when every job is final.", summary.ended),
        "summary": ("Time at which these metrics were made.", summary.at),
    }
    if (estimate := summary.estimate) is not None:
        times |= {
            "expected_end": ("Time at which the run is expected to end.", estimate.at),
            "expected_end_earliest": ("Lower quartile of the expected end.", estimate.earliest),
            "expected_end_latest": ("Upper quartile of the expected end.", estimate.latest),
        }
    for name, (help_text, at) in times.items():
        if at is not None:
            yield _single(f"qcg_pm_{name}_timestamp_seconds", help_text, at)


def _single(name: str, help_text: str, value: float) -> _Family:
    return _Family(name, "gauge", help_text, {"": float(value)})


def _by_state(name: str, help_text: str, counts: Mapping[str, int]) -> _Family:
    samples = {state.name: float(counts.get(state.name, 0)) for state in State}
    return _Family(name, "gauge", help_text, samples, "state")


def _escape(value: str) -> str:
    return printable(value[:LONGEST_LABEL]).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
