"""Metrics of a run: the parser of Prometheus reads them, and their number is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as parse_older_format

from qcg.pilotjob import __version__
from qcg.pilotjob.report.metrics_text import LONGEST_LABEL, MOST_NODE_SERIES, metrics_text
from qcg.pilotjob.report.run_summary import Estimate, History, NodeSummary, RunSummary
from tests.support.hostile_texts import HOSTILE, harm_in


def summary(**changes: Any) -> RunSummary:
    values: dict[str, Any] = {
        "run": "wizard.1",
        "directory": "/home/me/.qcgpjm-service-wizard.1",
        "at": 1100.5,
        "alive": True,
        "host": "wizard",
        "started": 1000.0,
        "ended": None,
        "jobs": {"QUEUED": 2, "EXECUTING": 1},
        "iterations": {"SUCCEED": 40, "FAILED": 3, "QUEUED": 57},
        "units": {"SUCCEED": 40, "FAILED": 3, "QUEUED": 58, "EXECUTING": 1},
        "cores": 8,
        "used": 5,
        "gpus": 2.0,
        "gpus_used": 0.5,
        "running": 5,
        "nodes": (NodeSummary("n1", 4, 1, state="drained"), NodeSummary("n2", 4, 4)),
        "more_nodes": 0,
        "rates": None,
        "estimate": Estimate(1200.0, 1180.0, 1250.0, "from 43 attempts"),
        "waiting": (),
        "failed": (),
        "history": History(1000.0, 10.0, (30.0, 40.5), (80.0, 80.0), (20, 28), (18, 25), (1, 2)),
    }
    return RunSummary(**{**values, **changes})


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by name, and by the label besides `run`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            (rest,) = [value for name, value in sample.labels.items() if name != "run"] or [""]
            found[sample.name, rest] = sample.value
    return found


def test_the_parser_of_openmetrics_reads_every_number_of_the_summary() -> None:
    found = samples(metrics_text(summary()))
    assert found["qcg_pm_build_version", __version__] == 1
    assert found["qcg_pm_manager_alive", ""] == 1
    assert found["qcg_pm_stalled", ""] == 0
    assert (found["qcg_pm_jobs", "QUEUED"], found["qcg_pm_jobs", "SUCCEED"]) == (2, 0)
    assert found["qcg_pm_iterations", "FAILED"] == 3
    assert found["qcg_pm_units", "QUEUED"] == 58
    assert (found["qcg_pm_cores", ""], found["qcg_pm_cores_used", ""]) == (8, 5)
    assert (found["qcg_pm_gpus", ""], found["qcg_pm_gpus_used", ""]) == (2, 0.5)
    assert found["qcg_pm_running_attempts", ""] == 5
    assert (found["qcg_pm_nodes", "ready"], found["qcg_pm_nodes", "drained"]) == (1, 1)
    assert found["qcg_pm_node_cores_used", "n2"] == 4
    assert found["qcg_pm_attempt_starts_total", ""] == 48
    assert found["qcg_pm_attempt_ends_total", ""] == 43
    assert found["qcg_pm_attempt_failures_total", ""] == 3
    assert found["qcg_pm_busy_core_seconds_total", ""] == 70.5
    assert found["qcg_pm_expected_end_timestamp_seconds", ""] == 1200
    assert found["qcg_pm_summary_timestamp_seconds", ""] == 1100.5
    assert ("qcg_pm_ended_timestamp_seconds", "") not in found


def test_the_older_format_of_the_textfile_collector_has_the_same_samples() -> None:
    text = metrics_text(summary())
    older = {sample.name: sample for family in parse_older_format(text) for sample in family.samples}
    assert {name for name, _ in samples(text)} == set(older)
    assert all(sample.timestamp is None for sample in older.values())


def test_every_sample_names_the_run() -> None:
    families = list(text_string_to_metric_families(metrics_text(summary())))
    assert {sample.labels["run"] for family in families for sample in family.samples} == {"wizard.1"}


def test_a_run_about_which_little_is_known_has_fewer_metrics() -> None:
    bare = summary(history=None, estimate=None, started=None, jobs={}, iterations={}, units={}, nodes=())
    names = {name for name, _ in samples(metrics_text(bare))}
    assert not any("attempt_starts" in name or "expected_end" in name or "node_cores" in name for name in names)
    assert "qcg_pm_jobs" in names


@pytest.mark.parametrize("text", [*HOSTILE.values(), 'a"} 1\nforged 2', "back\\slash", "a\\nb", "", "x" * 5000])
def test_hostile_run_ids_and_node_names_stay_values_of_labels(text: str) -> None:
    nodes = (NodeSummary(text, 4, 1), NodeSummary("n2", 4, 4))
    made = metrics_text(summary(run=text, nodes=nodes))
    assert not harm_in(made)
    made.encode()
    families = list(text_string_to_metric_families(made))
    assert len(families) == len(list(text_string_to_metric_families(metrics_text(summary()))))
    (used,) = [family for family in families if family.name == "qcg_pm_node_cores_used"]
    assert len(used.samples) == 2
    assert all(len(sample.labels["run"]) <= 10 * LONGEST_LABEL for sample in used.samples)
    assert "forged" not in {family.name for family in families}


def test_the_number_of_series_does_not_grow_with_the_number_of_nodes() -> None:
    def series(number: int, more: int = 0) -> int:
        nodes = tuple(NodeSummary(f"n{index}", 4, 0) for index in range(number))
        return len(samples(metrics_text(summary(nodes=nodes, more_nodes=more))))

    few, many = series(MOST_NODE_SERIES), series(200, 100_000)
    assert few - many == 2 * MOST_NODE_SERIES
    assert many < 60
    assert series(1, MOST_NODE_SERIES) == many


def test_names_that_are_equal_where_they_are_cut_off_share_a_series() -> None:
    nodes = (NodeSummary("n" * 400 + "1", 4, 1), NodeSummary("n" * 400 + "2", 4, 2))
    found = samples(metrics_text(summary(nodes=nodes)))
    assert found["qcg_pm_node_cores_used", "n" * LONGEST_LABEL] == 3
