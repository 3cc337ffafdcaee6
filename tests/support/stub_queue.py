"""A stub of a batch system: a small program with a directory as its queue. No real batch system is involved.

Submitted scripts wait until a test runs them. Tests let its commands hang, fail or answer nonsense by writing files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.cluster.remote_queue import Cause, RemoteQueue

PROGRAM = f"""#!{sys.executable}
import fcntl, json, os, sys, time
queue = os.path.dirname(os.path.abspath(__file__))
action, *words = sys.argv[1:]
with open(queue + "/calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
def knob(name):
    try:
        with open(queue + "/" + action + "." + name) as file:
            return file.read()
    except FileNotFoundError:
        return None
def jobs():
    names = [name for name in os.listdir(queue) if name.endswith(".job")]
    return [json.load(open(queue + "/" + name)) for name in sorted(names)]
def store(job):
    new = "%s/new-%d" % (queue, os.getpid())
    with open(new, "w") as file:
        json.dump(job, file)
    os.rename(new, queue + "/%s.job" % job["id"])
while knob("hang") is not None:
    time.sleep(0.05)
if knob("answer") is not None:
    sys.stdout.write(knob("answer"))
    sys.exit(0)
if knob("fail") is not None:
    sys.exit(knob("fail"))
if action == "submit":
    script = words[-1]
    text = open(script).read()
    if "--partition=nope" in text:
        sys.exit("stub: there is no partition nope")
    options = [line[6:] for line in text.splitlines() if line.startswith("#STUB ")]
    name = [option[7:] for option in options if option.startswith("--name=")][0]
    with open(queue + "/count", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("x")
        file.flush()
        id = str(os.fstat(file.fileno()).st_size)
    store({{"id": id, "name": name, "state": "WAITING", "script": script, "options": options, "env": dict(os.environ)}})
    if knob("die") is not None:
        os.kill(os.getppid(), 9)
        time.sleep(float(knob("die") or 0))
    if knob("killed") is not None:
        os.kill(os.getpid(), 15)
    if knob("silent") is not None:
        sys.exit(knob("silent"))
    print("submitted job", id)
elif action in ("list", "find"):
    for job in jobs():
        if job["id" if action == "list" else "name"] in words:
            print(job["id"], job["state"], job["name"])
elif action == "ended":
    for id, state in json.loads(knob("states") or "{{}}").items():
        if id in words:
            print(id, state)
elif action == "kill":
    for job in jobs():
        if job["id"] in words and job["state"] in ("WAITING", "RUNNING"):
            store(dict(job, state="CANCELLED" if job["state"] == "WAITING" else "ENDING"))
"""


class StubQueue:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.program = directory / "stub-queue"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def described(self, **changes: Any) -> dict[str, Any]:
        """The commands of the stub, as a manager sends them."""
        program = str(self.program)
        queue = RemoteQueue(
            name="stub",
            label="Stub",
            submit=[program, "submit", "{script}"],
            submitted=r"^submitted job (?P<id>\d+)$",
            prefix="#STUB ",
            directives=[
                *("--name={name}", "--out={output}", "--err={error}", "--nodes={nodes}", "--cores={cores}"),
                *("--gpus={gpus}", "--memory={memory}", "--minutes={minutes}"),
            ],
            reserved=["--name"],
            variables={"--minutes": "STUB_MINUTES"},
            list_jobs=[program, "list", "{ids}"],
            find_jobs=[program, "find", "{user}", "{names}"],
            job_line=r"^(?P<id>\d+) (?P<state>[A-Z]+) (?P<name>\S+)$",
            waiting=["WAITING"],
            over={
                "COMPLETED": Cause.NONE,
                "CANCELLED": Cause.CANCELLED,
                "TIMEOUT": Cause.TIME_LIMIT,
                "MEMORY": Cause.MEMORY,
                "NODEFAIL": Cause.NODE_FAILED,
            },
            unknown="no such job",
            unreachable="cannot connect",
            list_ended=[program, "ended", "{ids}"],
            ended_line=r"^(?P<id>\d+) (?P<state>[A-Z]+)$",
            kill=[program, "kill", "{ids}"],
            id_variable="STUB_JOB",
            hide=["STUB_*"],
            timeout=30.0,
            grace=1.0,
            submit_poll_interval=0.0,
            poll_interval=0.0,
        )
        queue = msgspec.structs.replace(queue, **changes)
        return json.loads(msgspec.json.encode(queue))

    # Operations of the batch system

    def jobs(self) -> list[dict[str, Any]]:
        found = [json.loads(path.read_text()) for path in self.directory.glob("*.job")]
        return sorted(found, key=lambda job: int(job["id"]))

    def id(self, name: str) -> str:
        """The id of the batch job of a job; the first one where it was submitted several times."""
        return next(job["id"] for job in self.jobs() if job["name"].startswith(f"{name}."))

    def set_state(self, job_id: str, state: str) -> None:
        path = self.directory / f"{job_id}.job"
        path.write_text(json.dumps({**json.loads(path.read_text()), "state": state}))

    def forget(self, job_id: str) -> None:
        (self.directory / f"{job_id}.job").unlink()

    def start(self, job_id: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the script of a batch job, as on a compute node."""
        self.set_state(job_id, "RUNNING")
        job = next(job for job in self.jobs() if job["id"] == job_id)
        return subprocess.Popen([job["script"]], env={**os.environ, **job["env"], "STUB_JOB": job_id}, **options)

    def run(self, job_id: str, state: str = "COMPLETED") -> int:
        """Run the script of a batch job to its end."""
        code = self.start(job_id).wait(60)
        self.set_state(job_id, state)
        return code

    # Faults

    def set(self, action: str, trouble: str, text: str = "") -> None:
        """`trouble`: `hang`, or `answer` or `fail` with this text. For submissions, the job is accepted, and then:
        `silent`: the command reports this error; `killed`: a signal ends the command; `die`: its parent is killed."""
        (self.directory / f"{action}.{trouble}").write_text(text)

    def clear(self, action: str, trouble: str) -> None:
        (self.directory / f"{action}.{trouble}").unlink()

    def calls(self, action: str) -> list[list[str]]:
        path = self.directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words[1:] for words in map(json.loads, lines) if words[0] == action]
