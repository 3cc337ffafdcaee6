"""`qcg-pm completion`: print the script that enables completion in a shell."""

from __future__ import annotations

import click

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.shell_completion import completion_script


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that enables completion of commands, options, job names and files in SHELL.

    bash, zsh: eval "$(qcg-pm completion bash)". fish: qcg-pm completion fish | source.
    """
    echo(completion_script(shell))
