"""The bare loop on a remote host: for each job, the files that a remote job has there, and one process.

    bare_loop.py COUNT PARALLEL DIRECTORY PROGRAM

It keeps PARALLEL processes running and prints the seconds that it took. It needs Python 3.8 and nothing else.
"""

from __future__ import annotations

import os
import sys
import time

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
MORE = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


def main() -> None:
    count, parallel = int(sys.argv[1]), int(sys.argv[2])
    began = time.time()
    loop = Loop(os.path.abspath(sys.argv[3]), sys.argv[4])
    for number in range(count):
        if number >= parallel:
            loop.wait()
        loop.start(f"job{number}")
    while loop.running:
        loop.wait()
    print(time.time() - began)


class Loop:
    def __init__(self, directory: str, program: str) -> None:
        self._program = program
        self._logs = f"{directory}/log/job/1"
        self._work = f"{directory}/work/1"
        for path in (self._logs, self._work):
            os.makedirs(path, 0o700)
        self.running: dict[int, str] = {}
        """Directories of the attempts that run, by pid."""
        self._null = os.open(os.devnull, os.O_RDWR)
        with open("/proc/sys/kernel/random/boot_id") as file:
            self._host = f"HOST={os.uname().nodename}\nBOOT={file.read().strip()}\nBATCH_SYSTEM=background"

    def start(self, name: str) -> None:
        job, work = f"{self._logs}/{name}", f"{self._work}/{name}"
        attempt = f"{job}/01"
        own = {"QCG_PM_JOB_NAME": name, "QCG_PM_ATTEMPT_DIR": attempt, "QCG_PM_CPU_SET": "0", "OMP_NUM_THREADS": "1"}
        os.mkdir(job, 0o700)
        os.mkdir(attempt, 0o700)
        os.symlink("01", f"{job}/NN")
        exports = "".join([f"export {key}={value}\n" for key, value in own.items()])
        write(f"{attempt}/job", NEW, f"#!/bin/sh\n{exports}cd {work} || exit\nexec {self._program}\n", 0o700)
        write(f"{attempt}/job.status", NEW, f"ATTEMPT={name}\nRUN=bare\n{self._host}\nSUBMITTED={now()}\n")
        os.mkdir(work, 0o700)
        os.chdir(work)
        stdout = os.open(f"{attempt}/job.out", NEW, 0o600)
        stderr = os.open(f"{attempt}/job.err", NEW, 0o600)
        streams = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate((self._null, stdout, stderr))]
        pid = os.posix_spawn(self._program, [self._program], {**os.environ, **own}, file_actions=streams)
        os.close(stdout)
        os.close(stderr)
        write(f"{attempt}/job.status", MORE, f"PID={pid}\nSTARTED={now()}\n")
        self.running[pid] = attempt

    def wait(self) -> None:
        pid, status = os.wait()
        end = f"EXIT_CODE={status >> 8}\nEND_REASON=exit\nENDED={now()}\n"
        write(f"{self.running.pop(pid)}/job.status", MORE, end)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write(path: str, flags: int, text: str, mode: int = 0o600) -> None:
    descriptor = os.open(path, flags, mode)
    os.write(descriptor, text.encode())
    os.close(descriptor)


if __name__ == "__main__":
    main()
