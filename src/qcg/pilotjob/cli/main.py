"""`qcg-pm`: one file a command, imported when it is called."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

import click

from qcg.pilotjob import __version__
from qcg.pilotjob.cli.node_list import join_node_list
from qcg.pilotjob.cli.target_options import Target, set_target
from qcg.pilotjob.common.similarity import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "run": "Run a request file and wait for all its jobs.",
    "validate": "Check a request file without running anything.",
    "schema": "Print the JSON Schema of request files.",
    "report": "Show the report on a run: counts, times, utilisation, failures.",
    "dashboard": "Serve a web page about a run, for its owner.",
    "runs": "List the runs of a directory with their states.",
    "clean": "Remove the files of runs that have ended.",
    "status": "Show the state of a run: its manager, cores and numbers of jobs.",
    "jobs": "List the jobs of a run, also after its end.",
    "top": "Watch a run on the whole screen, and act on its jobs.",
    "info": "Show all details of jobs.",
    "why": "Explain why jobs wait or failed.",
    "submit": "Submit more jobs to a running manager.",
    "wait": "Wait until jobs have ended.",
    "logs": "Show or follow the output of jobs.",
    "cat-log": "List, show or follow log files on remote hosts.",
    "cancel": "End jobs, waiting and running ones.",
    "kill": "The same as cancel.",
    "hold": "Keep waiting jobs from being started.",
    "release": "Let held jobs be started.",
    "set": "Change the requests of waiting jobs.",
    "poll": "Ask remote hosts for the states of jobs now.",
    "remove": "Remove jobs that have ended.",
    "rerun": "Run unsuccessful jobs again.",
    "resources": "Show how many cores there are and how many are free.",
    "nodes": "Drain nodes of a running manager, and use them again.",
    "hosts": "List, check and connect remote hosts.",
    "finish": "End a running manager.",
    "alloc": "Run a request file in allocations of the batch system.",
    "sbatch": "The same as alloc, for sbatch.",
    "completion": "Print the script for completion in a shell.",
    "bench": "Measure the speed of a manager on this machine.",
}

TAKE_TARGET = frozenset(
    (
        *("status", "jobs", "info", "why", "submit", "wait", "logs", "cancel", "kill", "poll", "remove", "rerun"),
        "resources",
        "hold",
        "release",
        "set",
        "nodes",
        "hosts",
        "cat-log",
        "finish",
    )
)
"""Commands with `--path` and `--address`, which may also be given before the command."""
TAKE_PATH = frozenset(("report", "dashboard", "runs", "clean", "top"))
"""Commands that take a directory alone."""
WORKING_DIRECTORY = dict.fromkeys(("run", "alloc", "sbatch", "bench"), "; its working directory is given with --wd")

ELSEWHERE = {
    "resume": "to continue a run: qcg-pm run --resume DIR, or to serve it again: qcg-pm-service --net --resume DIR",
}
"""Hints for words that users take for a command, and that are options of one."""


class Commands(click.Group):
    """Knows the commands by name; `qcg-pm FILE` is short for `qcg-pm run FILE`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"qcg.pilotjob.cli.commands.{cmd_name.replace('-', '_')}").command
        command.short_help = COMMANDS[cmd_name]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """A file may stand in the place of a command."""
        from click.shell_completion import CompletionItem  # here: only shells need it

        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Words after `--` are the user's program and its arguments.
        place = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*join_node_list(args[:place]), *args[place:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and ("." in args[0] or "/" in args[0] or os.path.exists(args[0])):
            args = ["run", *args]
        elif args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {args[0]!r}{_instead(args[0])}")
        return super().resolve_command(ctx, args)


def _instead(name: str) -> str:
    if name in ELSEWHERE:
        return f"; {ELSEWHERE[name]}"
    near = nearest(name, COMMANDS)
    return f"; did you mean {near!r}?" if near is not None else "."


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="qcg-pm")
@click.option(
    "-p",
    "--path",
    type=click.Path(readable=False),
    metavar="DIR",
    help="Run or working directory, for commands that ask about a run.",
)
@click.option("-a", "--address", help="Address of a manager, for commands that talk to one.")
@click.pass_context
def main(context: click.Context, path: str | None, address: str | None) -> None:
    """Run many jobs inside one allocation, or on this machine."""
    for option, given in (("path", path), ("address", address)):
        taken = TAKE_TARGET if option == "address" else TAKE_TARGET | TAKE_PATH
        if given is not None and context.invoked_subcommand not in taken:
            context.fail(
                f"--{option} says where a run is, and `qcg-pm {context.invoked_subcommand}` asks about none"
                f"{WORKING_DIRECTORY.get(context.invoked_subcommand or '', '')}"
            )
    set_target(context, Target(path, address))
