"""The relay in C, used by `relay_runner`. `host.lane_runner` describes its offers and handovers."""

from qcg.pilotjob.host.lane_runner import Handover, Offer

INTERFACE: int
"""Version of these functions, to find a module that was compiled for another version of `relay_runner`."""
SUCCEEDED_LINE: str
"""The line that the relay writes to the ledger, as a format string."""

def open(wakeup: int, null: int, memory_flags: int, highest: int, open_files: int) -> None:
    """Start the relay. It writes a byte 0 to `wakeup` when there are handovers to take, and SIGCHLD when a child has
    ended that does not belong to a lane. Memory files for captured output are made with `memory_flags`, and have
    descriptors below `highest`. Jobs get the soft limit `open_files` of open files; 0: the limit of this process."""

def close() -> None: ...
def enter() -> None:
    """Wait for handovers under way, and suspend others until `leave`. Calls may be nested. `watch` and `give_up` wait
    in the same way."""

def enter_within(seconds: float) -> bool:
    """`enter` with a timeout. False: handovers are not suspended."""

def leave() -> None: ...
def watch(
    lane: int, pid: int, id: bytes, started: float, stdout: int, stderr: int, ledger: int, offers: list[Offer]
) -> bool:
    """Make a new lane of this number with this child as its active job, and start `offers` after it. The child may have
    ended, but must not be reaped. `stdout` and `stderr` are as in a handover. False: no thread can be created."""

def offer(lane: int, ledger: int, offers: list[Offer]) -> bool:
    """Append jobs to this lane. False: the lane was given up."""

def give_up(lane: int) -> None:
    """Start nothing more in this lane. All its handovers can be taken afterwards."""

def watches(pid: int) -> bool:
    """Whether this child is the active job of a lane. The relay reaps it, or gives up its lane and writes SIGCHLD to
    `wakeup`."""

def hold(held: bool) -> None:
    """Start nothing while held. Never waits."""

def hold_after(moment: float) -> None:
    """Start nothing after this monotonic time. Never waits."""

def heard() -> None:
    """To be called before children are reaped: SIGCHLD is written to `wakeup` once, and then not before this."""

def pending() -> bool:
    """Whether there are handovers to take."""

def take() -> list[Handover]:
    """The handovers since the last call."""
