"""`qcg-pm kill`: the same as `qcg-pm cancel`, under the name that users of other tools know."""

from __future__ import annotations

import click

from qcg.pilotjob.cli.commands.cancel import command as cancel

command = click.Command("kill", params=cancel.params, callback=cancel.callback, help=cancel.help)
