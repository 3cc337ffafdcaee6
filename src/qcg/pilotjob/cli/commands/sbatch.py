"""`qcg-pm sbatch FILE`: `qcg-pm alloc` for Slurm, with the names of options that users of `sbatch` know."""

from __future__ import annotations

from typing import Any

import click

from qcg.pilotjob.cli.commands.alloc import PASSED_ON, allocation_options, submit_run

OUTPUT = "Output file of the allocation; otherwise slurm-JOBID.out in the working directory."


@click.command("sbatch")
@allocation_options
@click.option("--sbatch-arg", multiple=True, help="A further option of sbatch: --sbatch-arg=--constraint=fast.")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Submit a batch script that runs the requests of FILE, with qcg-pm run, in an allocation of Slurm.

    Takes the options of `qcg-pm run` too, for the run. Words after -- are options of sbatch.

    Exit code 0: submitted; with --wait, that of the run (4: jobs are left). 2: it could not be submitted.
    """
    submit_run(context, "slurm", given.pop("sbatch_arg"), given)


for option in command.params:
    if isinstance(option, click.Option) and option.name == "output":
        option.help = OUTPUT
command.params += PASSED_ON
