"""Gives a signal to jobs: to all their processes that catch it, and to no other, which it would end."""

from typing import Iterable, List, Set

from qcg.pilotjob.host import tree
from qcg.pilotjob.host.ending import Ending
from qcg.pilotjob.host.ledger import Opened

_FORWARDERS = {b"mpirun", b"mpiexec", b"mpiexec.hydra", b"orterun", b"prterun", b"srun"}
"""These pass a signal on to what they have started, here and elsewhere: it would come twice."""


def pass_on(jobs: Iterable[Opened], number: int) -> None:
    snapshot = tree.Snapshot()
    for job in jobs:
        members = Ending(job, 0.0).members(snapshot)
        below: Set[int] = set()
        for process in members.values():
            if tree.name_of(process.pid) in _FORWARDERS:
                below.update(_below(snapshot, process))
        for process in members.values():
            if process.pid not in below and tree.catches(process.pid, number):
                tree.send(process, number)


def _below(snapshot: tree.Snapshot, process: tree.Process) -> List[int]:
    return list(snapshot.with_descendants(snapshot.children(process.pid)))
