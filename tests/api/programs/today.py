"""A program that uses the current client; mypy checks it in strict mode."""

from __future__ import annotations

from qcg.pilotjob.api.errors import ConnectionError, TimeoutElapsed
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.manager import Manager


def run(manager: Manager) -> dict[str, JobInfo]:
    jobs = Jobs().add(name="first", exec="/bin/date", stdout="date").add(name="second", exec="true", after="first")
    names: list[str] = manager.submit(jobs)
    try:
        states: dict[str, str] = manager.wait4(names, timeout=60)
    except TimeoutElapsed:
        manager.cancel(names)
        raise
    assert all(Manager.is_status_finished(state) for state in states.values())
    return manager.info_parsed(names)


def main() -> None:
    try:
        with Manager() as manager:
            for name, info in run(manager).items():
                seconds: float = info.time.total_seconds() if info.time else 0.0
                print(name, info.status, info.total_cores, seconds > 0)
    except ConnectionError as error:
        raise SystemExit(str(error)) from None


main()
