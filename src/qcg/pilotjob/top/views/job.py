"""One job: why it is in its state, its attempts and their resource usage, its dependencies and its description."""

from __future__ import annotations

import msgspec
from rich.text import Text

from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.top.bars import state_bar
from qcg.pilotjob.top.model import Look, Model
from qcg.pilotjob.top.text import (
    clock,
    cut,
    number,
    padded,
    percent,
    rule,
    shown,
    stopwatch,
    style_of,
    symbol,
    wrapped,
)
from qcg.pilotjob.top.views.jobs import has_manager, run_time
from qcg.pilotjob.top.views.overview import legend
from qcg.pilotjob.watch.source import AttemptLine, JobDetails, JobLine

LABEL = 11
MOST_NAMES = 12


def job_view(model: Model, width: int, height: int) -> list[Text]:
    lines = job_lines(model, width)
    first = min(model.job.scroll if model.job is not None else 0, max(0, len(lines) - height))
    return lines[first : first + height]


def job_lines(model: Model, width: int) -> list[Text]:
    """All lines of the details; the screen shows a part of them."""
    job, look = model.job, model.look
    if job is None or job.details is None:
        name = job.name if job is not None else ""
        if job is not None and job.missing:
            return [Text(), Text(cut(f"  There is no job {name} in this run.", width, look))]
        return [Text(), Text(cut(f"  Reading {name} ...", width, look), style="dim")]
    details, inner = job.details, width - 2
    line = details.line
    lines = [
        Text.assemble(
            (f"{symbol(line.state, look)} {shown(line.state, look)}", f"bold {style_of(line.state)}"),
            "  ",
            (cut(line.name, max(1, inner - 14), look), "bold"),
        ),
        Text(),
        *_labelled("why", details.why, inner, look),
        *_labelled("message", line.message if line.message not in details.why else "", inner, look),
        *_times(line, model, inner),
        *_labelled("where", line.grant, inner, look),
        *_usage(line, inner, look),
    ]
    if line.iterations:
        lines += _iterations(line, inner, look)
    if details.attempts:
        lines += [Text(), rule(Text("Attempts", style="bold"), inner, look)]
        lines += _attempts(details.attempts, model, inner)
    lines += _dependencies(details, inner, look)
    if details.streams:
        lines += [Text(), rule(Text("Output", style="bold"), inner, look)]
        for stream, path in details.streams.items():
            lines += _labelled(stream, path, inner, look)
    lines += _description(details, inner, look)
    return [Text.assemble(" ", line) for line in lines]


def _labelled(label: str, text: str, width: int, look: Look) -> list[Text]:
    """A label and a text that may take several lines."""
    if not text:
        return []
    first, *more = wrapped(text, max(1, width - LABEL), look)
    return [
        Text.assemble((f"{label:{LABEL}}", "dim"), first),
        *(Text(" " * LABEL + line) for line in more),
    ]


def _times(line: JobLine, model: Model, width: int) -> list[Text]:
    now = model.now
    text = f"submitted {clock(line.submitted, now)}"
    if line.started is not None:
        text += f", started {clock(line.started, now)}"
    if line.ended is not None:
        text += f", ended {clock(line.ended, now)}"
    if took := run_time(line, model):
        text += f"; {'ran' if line.ended is not None else 'runs for'} {took}"
    return _labelled("times", text, width, model.look)


def _usage(line: JobLine, width: int, look: Look) -> list[Text]:
    parts = []
    if line.cpu_efficiency is not None:
        parts.append(f"CPU efficiency {line.cpu_efficiency:.0%}")
    if line.max_memory:
        parts.append(f"at most {bytes_text(line.max_memory)} of memory")
    if line.exit_code is not None:
        parts.append(f"exit code {line.exit_code}")
    return _labelled("usage", ", ".join(parts), width, look)


def _iterations(line: JobLine, width: int, look: Look) -> list[Text]:
    counts = line.iterations
    total = sum(counts.values())
    final = sum(count for state, count in counts.items() if state not in ("QUEUED", "SCHEDULED", "EXECUTING"))
    figures = f" {percent(final, total)} of {number(total)}"
    counted = [Text.assemble(" " * LABEL, line) for line in legend(counts, width - LABEL, look)]
    bar = state_bar(counts, max(4, min(60, width - LABEL - len(figures) - 1)), look)
    return [Text.assemble((f"{'iterations':{LABEL}}", "dim"), bar, figures), *counted]


def _attempts(attempts: tuple[AttemptLine, ...], model: Model, width: int) -> list[Text]:
    now, look = model.now, model.look
    wide, narrow = width >= 120, width < 100
    head = f"{'#':>3}  {'state':10} {'started':>12}  {'time':>8}  {'exit':>4}  {'cpu':>5}  {'memory':>10}"
    head += f"  {'read':>10}  {'written':>10}" if wide else ""
    lines = [Text(head + ("" if narrow else "  where and why"), style="bold dim")]
    for attempt in attempts:
        started = clock(attempt.started, now) if attempt.started is not None else ""
        until = attempt.ended if attempt.ended is not None else now if has_manager(model) else None
        took = "" if attempt.started is None or until is None else stopwatch(until - attempt.started)
        code = "" if attempt.exit_code is None else str(attempt.exit_code)
        cpu = "" if attempt.cpu_efficiency is None else f"{attempt.cpu_efficiency:.0%}"
        memory = bytes_text(attempt.max_memory) if attempt.max_memory else ""
        figures = f"{started:>12}  {took:>8}  {code:>4}  {cpu:>5}  {memory:>10}"
        if wide:
            moved = (bytes_text(count) if count else "" for count in (attempt.read, attempt.written))
            figures += "".join([f"  {text:>10}" for text in moved])
        state = padded(Text(cut(f"{symbol(attempt.state, look)} {attempt.state}", 11, look)), 11)
        state.stylize(style_of(attempt.state))
        row = Text.assemble(f"{attempt.number:>3}  ", state, figures, "  ")
        cause = f"repeated: {attempt.cause}" if attempt.cause else ""
        if attempt.rerun_at is not None:
            cause = f"run again at {clock(attempt.rerun_at, now)}"
        why = "  ".join(text for text in (attempt.grant, attempt.message, cause) if text)
        if narrow:
            lines.append(row)
            lines += [Text(f"     {text}", style="dim") for text in wrapped(why, max(1, width - 5), look) if text]
        else:
            lines.append(Text.assemble(row, cut(why, max(0, width - row.cell_len), look)))
    return lines


def _dependencies(details: JobDetails, width: int, look: Look) -> list[Text]:
    lines: list[Text] = []
    name = details.line.name
    for label, towards in (("waits for", True), ("before", False)):
        kinds: dict[str, list[str]] = {}
        for edge in details.dependencies:
            if (edge.job == name) is towards:
                kinds.setdefault(edge.kind, []).append(edge.on if towards else edge.job)
        for kind, names in kinds.items():
            lines += _labelled(label, f"{list_names(names, MOST_NAMES)} ({kind})", width, look)
    return [Text(), rule(Text("Dependencies", style="bold"), width, look), *lines] if lines else []


def _description(details: JobDetails, width: int, look: Look) -> list[Text]:
    if not details.description:
        return []
    try:
        text = msgspec.json.format(details.description, indent=2)
    except msgspec.DecodeError:
        text = details.description
    lines = [Text(part) for line in text.split("\n") for part in _indented(line, width, look)]
    return [Text(), rule(Text("Description", style="bold"), width, look), *lines]


def _indented(line: str, width: int, look: Look) -> list[str]:
    """A line of JSON in as many lines as it needs, all with its indentation."""
    text = line.lstrip(" ")
    indent = " " * min(len(line) - len(text), width // 2)
    return [indent + part for part in wrapped(text, max(1, width - len(indent)), look)]
