"""What all launches of one manager have in common."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Site(Struct, frozen=True):
    root_wd: str
    """The manager's working directory, absolute."""
    instance: str
    """Unique among all pilots: with a run's id it marks every process of that run."""
    zmq_address: str = ""
    """Of the network interface, when there is one."""
    contact: str = ""
    """Path of the contact file, where a job that is a client finds the keys for that address."""
    allocation: str = ""
    """The id of the Slurm job whose nodes these are; empty where Slurm has nothing to do with them."""
    slurm_environment: bool = False
    """Jobs see the variables that Slurm would have given them."""
    files: str = ""
    """The directory where hosts put the files of launches, absolute and the same on all nodes."""
    output: str = ""
    """The directory where hosts save the output of jobs, absolute and the same on all nodes; without it, output that no
    file is named for is dropped."""
    keep_output: bool = False
    """Save the output of jobs that succeed as well."""
    bindings: dict[str, Mapping[int, int]] = {}
    """For each node whose cores are known, the CPU of its operating system for each core id of a grant. Processes on
    other nodes are not bound. Filled in as agents tell."""
    visible_gpus: dict[str, Mapping[str, str]] = {}
    """For each node where programs call GPUs by other names than the grant: those names. Filled in as agents tell."""
    hides_gpus: bool = False
    """GPUs were given to the manager by name: jobs see those that they asked for, and no others."""
    hidden: tuple[str, ...] = ()
    """Variables of the manager's environment that jobs must not see, as in `host/records.py:Launch.unset`."""
    threads_chosen: bool = False
    """The user has set OMP_NUM_THREADS for everything."""
