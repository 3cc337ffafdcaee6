"""`qcg-pm completion`: print the script that enables completion in a shell."""

from __future__ import annotations

import click

from qcg.pilotjob.cli.console import echo

PROGRAMS = ("qcg-pm", "qcg-pm-service", "qcg-pm-client")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, /, shell: str) -> None:
    """Print the script that enables completion of commands, options, job names and files in SHELL.

    bash, zsh: eval "$(qcg-pm completion bash)". fish: qcg-pm completion fish | source.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    scripts = []
    for name in PROGRAMS:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        # The script calls the program by its name: any command will do here.
        scripts.append(kind(context.command, {}, name, variable).source())
    echo("\n".join(scripts))
