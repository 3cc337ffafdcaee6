"""Suggestions for mistyped options."""

from __future__ import annotations

import click

from qcg.pilotjob.common.similarity import similar

SIMILARITY = 0.7
"""Cutoff for similar names. With a lower one, `--no-net` would be suggested for `--node`."""
SHORTEST_BEGINNING = 3
"""Characters of an option name from which on the options that begin with them are suggested."""


_OTHER_NAMES = {"--array": "--iteration", "--ntasks": "--cores", "--cpus-per-task": "--cores", "-n": "--cores"}
"""Options of batch systems, and what they are called here."""


def suggest_options(error: click.NoSuchOption) -> click.UsageError:
    """The same error with the most similar option first: click sorts by name, and suggests dissimilar ones."""
    # Dashes are left out of the comparison: every option has them.
    known = {name.lstrip("-"): name for name in _long_options(error.ctx)}
    given = error.option_name.lstrip("-")
    near = similar(given, known, SIMILARITY)
    if not near and len(given) >= SHORTEST_BEGINNING:
        near = [name for name in known if name.startswith(given)]
    options = [known[name] for name in near]
    meant = _OTHER_NAMES.get(error.option_name)
    if meant is not None and meant in known.values():
        options = [meant]
    suggestion = f"; did you mean {' or '.join(options)}?" if options else ""
    return click.UsageError(f"No such option {error.option_name}{suggestion}", error.ctx)


def _long_options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    options = [option for option in context.command.get_params(context) if isinstance(option, click.Option)]
    return [name for option in options if not option.hidden for name in option.opts if name.startswith("--")]
