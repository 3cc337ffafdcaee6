"""`qcg-pm info`: show details of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.json_records import job_information
from qcg.pilotjob.cli.manager_lookup import expand_names, on_manager_or_registry, print_missing
from qcg.pilotjob.cli.shell_completion import job_names
from qcg.pilotjob.cli.tables import json_option, show_json
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.report.entries import value_text
from qcg.pilotjob.report.formats import peak_text

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

MOST_INDICES = 20
"""Indices of a job that are shown, where they are no range."""


@click.command("info")
@click.argument("names", nargs=-1, required=True, shell_complete=job_names())
@click.option("-i", "--iterations", is_flag=True, help="Show each iteration, too.")
@json_option
@on_manager_or_registry
def command(manager: Queries, names: tuple[str, ...], iterations: bool, as_json: bool) -> int:
    """Show details of jobs: their history, nodes and cores, files, and exit code.

    NAMES may hold patterns ('sim*') and iterations (job:3, job:3-7, 'job:*').
    """
    jobs = manager.info(expand_names(manager, names), withChilds=iterations)["jobs"]
    known = {name: entry["data"] for name, entry in jobs.items() if entry["status"] == 0}
    if as_json:
        show_json({name: job_information(info) for name, info in known.items()})
    elif known:
        echo("\n\n".join("\n".join(details(info)) for info in known.values()))
    return print_missing(manager, jobs)


def details(info: dict[str, Any]) -> list[str]:
    """The details of a job in the form of `jobs.report`."""
    lines = [printable(f"{info['jobName']} ({info['status']})")]
    lines += [f"    {line}" for line in info["history"].splitlines() if line]
    lines += _fields(info.get("runtime", {}), "    ")
    lines += _demand(info)
    lines += _remote(info.get("remote", {}))
    if "priority" in info:
        lines.append(f"    priority: {info['priority']}")
    if "heldSince" in info:
        lines.append(f"    held since: {info['heldSince']}")
    if "itval" in info:
        lines.append(f"    itval: {value_text(info['itval'])}")
    lines += _attempts(info, "    ")
    if "rowProblem" in info:
        lines.append(f"    itval: unknown, {printable(info['rowProblem'])}")
    if "iterations" in info:
        counts = [f"{name} {_count(count)}" for name, count in info["iterations"].items()]
        lines.append(f"    iterations: {', '.join(counts)}")
    if "messages" in info:
        lines.append(f"    messages: {printable(info['messages'])}")
    for child in info.get("childs", []):
        lines.append(f"    {printable(info['jobName'])}:{child['iteration']} ({child['state']})")
        lines += _fields(child["runtime"], "        ")
        if "itval" in child:
            lines.append(f"        itval: {value_text(child['itval'])}")
        lines += _attempts(child, "        ")
        if "messages" in child:
            lines.append(f"        messages: {printable(child['messages'])}")
    return lines


def _count(count: Any) -> str:
    """A count, or the indices of iterations that are no range."""
    if not isinstance(count, list):
        return str(count)
    shown = " ".join(map(str, count[:MOST_INDICES]))
    return f"{shown} …" if len(count) > MOST_INDICES else shown


def _attempts(info: dict[str, Any], indent: str) -> list[str]:
    """Earlier attempts: `attempt 1: exit code 3; on n0[1]`, with what each used."""
    lines = []
    for attempt in info.get("attempts", []):
        text = attempt.get("messages") or attempt["cause"]
        if attempt["cause"] not in ("exit", text):
            text = f"{attempt['cause']}: {text}"
        if "allocation" in attempt:
            text = f"{text.rstrip('.')}; on {attempt['allocation']}"
        lines.append(f"{indent}attempt {attempt['attempt']}: {printable(text)}")
        if "cpu_time" in attempt:
            lines += [f"{indent}    {name}: {value}" for name, value in _usage(attempt).items()]
    return lines


def _demand(info: dict[str, Any]) -> list[str]:
    """What the job asks for and waits for, and when it is started again."""
    lines = []
    if resources := info.get("resources"):
        lines.append(f"    resources: {', '.join(_resources(resources))}")
    if dependencies := info.get("dependencies"):
        kinds = [f"{kind} {', '.join(names)}" for kind, names in dependencies.items()]
        lines.append(f"    dependencies: {printable('; '.join(kinds))}")
    if retry := info.get("retry"):
        counts = ", ".join(f"{cause} {count}" for cause, count in retry["on"].items())
        further = value_text({key: value for key, value in retry.items() if key != "on"})
        lines.append(f"    retry: {'; '.join(filter(None, (counts, further)))}")
    return lines


def _resources(resources: dict[str, Any]) -> list[str]:
    """What a job asks for, in the words of the options of `qcg-pm set`: `cores 1-2`, `mem 2048MB`."""
    on_nodes = resources.get("nodeCrs", {})
    amounts = {"cores": resources.get("numCores"), "nodes": resources.get("numNodes")}
    plain = {"gpus": on_nodes.get("gpu"), "mem": f"{on_nodes['mem']}MB" if "mem" in on_nodes else None}
    plain |= {key: resources[key] for key in ("mem", "wt") if key in resources} | resources.get("named", {})
    words = [f"{name} {_amount(amount)}" for name, amount in amounts.items() if amount is not None]
    return words + [f"{name} {value}" for name, value in plain.items() if value is not None]


def _amount(amount: dict[str, Any]) -> str:
    """An amount as it is written on the command line: `4`, `2-4` or `2-`."""
    if "exact" in amount:
        return str(amount["exact"])
    scheduler = f" ({amount['scheduler']['name']})" if "scheduler" in amount else ""
    return f"{amount['min']}-{amount.get('max', '')}{scheduler}"


def _remote(remote: dict[str, Any]) -> list[str]:
    """The keys of the job about its remote host: `host: wizard`, `inputs: data/*.csv, model/`."""
    lines = []
    for key, value in remote.items():
        if isinstance(value, dict):
            value = [f"{name}={text}" if text else name for name, text in value.items()]
        lines.append(f"    {key}: {printable(', '.join(value) if isinstance(value, list) else str(value))}")
    return lines


def _fields(runtime: dict[str, str], indent: str) -> list[str]:
    shown = dict(runtime)
    if "cpu_time" in runtime:
        shown = {key: value for key, value in runtime.items() if key not in _USAGE} | _usage(runtime)
    return [f"{indent}{name}: {printable(value)}" for name, value in shown.items()]


_USAGE = frozenset(
    {
        "cpu_time",
        "user_time",
        "system_time",
        "cpu_efficiency",
        "max_memory",
        "requested_memory",
        "minor_faults",
        "major_faults",
        "read_bytes",
        "written_bytes",
    }
)
"""Keys of `runtime` that are shown in few lines."""


def _usage(runtime: dict[str, Any]) -> dict[str, str]:
    """What the attempt used: CPU time, memory, storage and page faults, one line each."""
    cpu = f"{runtime['cpu_time']}, user {runtime['user_time']}, system {runtime['system_time']}"
    if "cpu_efficiency" in runtime:
        cpu += f", {float(runtime['cpu_efficiency']):.1%} of its cores"
    amounts = {key: bytes_text(int(runtime.get(key, 0))) for key in _USAGE if key.endswith(("memory", "bytes"))}
    of = f" of {amounts['requested_memory']}" if "requested_memory" in runtime else ""
    return {
        "cpu_time": cpu,
        "max_memory": peak_text(int(runtime["max_memory"])) + of,
        "storage": f"{amounts['read_bytes']} read, {amounts['written_bytes']} written",
        "page_faults": f"{runtime['major_faults']} major, {runtime['minor_faults']} minor",
    }
