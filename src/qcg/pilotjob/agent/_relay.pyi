"""The relay in C, used by `relay_runner`. `host.lane_runner` describes its offers and handovers."""

from qcg.pilotjob.host.lane_runner import Handover, Offer

INTERFACE: int
"""Version of these functions, to find a module that was compiled for another version of `relay_runner`."""
SUCCEEDED_LINE: str
"""The line that the relay writes to the ledger, as a format string."""

def open(wakeup: int, null: int, memory_flags: int, highest: int, open_files: int) -> None:
    """Start its first thread. To `wakeup` it writes a byte 0 when there is something to take, and SIGCHLD when there is
    a child to be reaped that is not for it. Memory files for captured output are made with `memory_flags`, and have
    descriptors below `highest`. Jobs get the soft limit `open_files` of open files; 0: the limit of this process."""

def close() -> None: ...
def enter() -> None:
    """From here on until `leave`, it does nothing. May be nested. This, `watch` and `give_up` wait for starts that are
    under way."""

def enter_within(seconds: float) -> bool:
    """The same for a caller that cannot wait for longer. False: it has not entered."""

def leave() -> None: ...
def watch(
    lane: int, pid: int, id: bytes, started: float, stdout: int, stderr: int, ledger: int, offers: list[Offer]
) -> bool:
    """This child is under way in a new lane of this number, and these are to be started after it. It may have ended, as
    long as it is not reaped. `stdout` and `stderr` are as in an event. False: no more threads can be had."""

def offer(lane: int, ledger: int, offers: list[Offer]) -> bool:
    """More to start in this lane, after those that were offered before. False: the lane was given up."""

def give_up(lane: int) -> None:
    """After it, all that was done in this lane can be taken, and nothing more is done there."""

def watches(pid: int) -> bool:
    """Whether this child is for the relay: it reaps it, or gives up its lane and writes SIGCHLD to `wakeup`."""

def hold(held: bool) -> None:
    """Whether nothing may be started. Never waits."""

def hold_after(moment: float) -> None:
    """Nothing is started after this moment, in monotonic seconds. Never waits."""

def heard() -> None:
    """SIGCHLD is written to `wakeup` once, and again after this: to be called before children are reaped."""

def pending() -> bool:
    """Whether there is something to take."""

def take() -> list[Handover]:
    """What has been done since the last call."""
