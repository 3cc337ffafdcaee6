"""The interface of lane runners, which start the next job of a lane when the job before it has succeeded.

A job host offers its lanes to its lane runner and records the handovers that the runner reports. A lane runner handles
success only. When a job fails, cannot be started or has to be killed, the job host takes the lane back and continues
itself. Where no other lane runner can be had, `HostLaneRunner` leaves every lane to the job host.
"""

from typing import Dict, List, Optional, Tuple

from qcg.pilotjob.host.job import ActiveJob

Offer = Tuple[
    bytes,
    bytes,
    bytes,
    List[bytes],
    List[bytes],
    bytes,
    Optional[bytes],
    Optional[bytes],
    Optional[Tuple[int, ...]],
    bool,
]
"""A launch that was prepared for a lane runner: its id as JSON, the ledger's line to write before the start, program,
argv, environment, working directory, stdout, stderr, cores, and whether streams without a file are captured."""

LONGEST_SUSPENSION = 0.05
"""Seconds to wait for a lane runner before captured output is trimmed: a file system may delay its starts."""

UsageCounts = Tuple[int, int, int, int, int, int, int]
"""The fields of `Usage`."""

Handover = Tuple[int, float, int, float, int, int, int, int, UsageCounts]
"""The active job of a lane has succeeded and the next one was started, or could not be started.

The number of the lane, when the job ended, the pid of the next one (0: it could not be started), when it was started,
the clock ticks before and after the start, the descriptors of its captured stdout and stderr (-1: not captured), and
what the job that has succeeded used.
The lane runner closes these descriptors when that job has succeeded and the next one is started.
"""


class LaneRunner:
    """The interface of lane runners. One thread calls it; any thread may call `hold` and `hold_after`."""

    lane_names: Dict[int, str]
    """Names of lanes by the numbers in handovers."""
    pause: float
    """Seconds for which handovers may be left untaken as long as no core waits for work."""
    takes_lanes = True
    """Whether the runner has lanes of its own, so that launches are worth planning for it."""

    def hold(self, held: bool) -> None:
        """Start nothing while held. Never waits."""
        raise NotImplementedError

    def hold_after(self, moment: float) -> None:
        """Start nothing after this monotonic time. Never waits."""
        raise NotImplementedError

    def lanes(self) -> List[str]:
        """The lanes that the runner has."""
        raise NotImplementedError

    def has_lane(self, lane: str) -> bool:
        raise NotImplementedError

    def accepts(self, lane: str) -> bool:
        """Whether launches of this lane can be offered: the runner may have as many lanes as it can."""
        raise NotImplementedError

    def offer(self, lane: str, job: ActiveJob, offers: List[Offer]) -> bool:
        """Start these one after another when `job`, the active one of the lane, has succeeded. False: refused."""
        raise NotImplementedError

    def release(self, lane: str) -> None:
        """Start nothing more in this lane. All its handovers can be taken afterwards."""
        raise NotImplementedError

    def pending(self) -> bool:
        """Whether there are handovers to take."""
        raise NotImplementedError

    def take(self) -> List[Handover]:
        """The handovers since the last call; handovers of one lane are in order."""
        raise NotImplementedError

    def suspend(self) -> None:
        """Wait for starts under way; then start and reap nothing until `resume`, so that the caller can reap children.
        May be nested."""
        raise NotImplementedError

    def suspend_within(self, seconds: float) -> bool:
        """Like `suspend`, for a caller that cannot wait for longer. False: the runner continues."""
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def reaps(self, pid: int) -> bool:
        """Whether the runner reaps this child, or else releases its lane and signals SIGCHLD."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class HostLaneRunner(LaneRunner):
    """Has no lanes of its own: the job host starts every job itself, in its turns."""

    takes_lanes = False

    def __init__(self) -> None:
        self.lane_names = {}
        self.pause = 0.0

    def hold(self, held: bool) -> None: ...

    def hold_after(self, moment: float) -> None: ...

    def lanes(self) -> List[str]:
        return []

    def has_lane(self, lane: str) -> bool:
        return False

    def accepts(self, lane: str) -> bool:
        return False

    def offer(self, lane: str, job: ActiveJob, offers: List[Offer]) -> bool:
        return False

    def release(self, lane: str) -> None: ...

    def pending(self) -> bool:
        return False

    def take(self) -> List[Handover]:
        return []

    def suspend(self) -> None: ...

    def suspend_within(self, seconds: float) -> bool:
        return True

    def resume(self) -> None: ...

    def reaps(self, pid: int) -> bool:
        return False

    def close(self) -> None: ...
