"""Options that are not there, with those that may be meant."""

from __future__ import annotations

import difflib

import click

NEAR = 0.7
"""How much of two names must agree. With less, `--node` is taken for `--no-net`."""


def with_nearest(error: click.NoSuchOption) -> click.UsageError:
    """The same error, with the nearest option first. The library sorts them by name, and takes far ones for near."""
    # The dashes are no part of the names: every option has them.
    known = {name.lstrip("-"): name for name in _long_options(error.ctx)}
    near = [known[name] for name in difflib.get_close_matches(error.option_name.lstrip("-"), known, cutoff=NEAR)]
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return click.UsageError(f"No such option {error.option_name}{meant}", error.ctx)


def _long_options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    options = [option for option in context.command.get_params(context) if isinstance(option, click.Option)]
    return [name for option in options if not option.hidden for name in option.opts if name.startswith("--")]
