"""Remote hosts that are reached with SSH: two hosts of the laboratory of the tests, without and with a slow network."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from bench import pilot
from bench.cylc import PEER, Cylc
from bench.finding import BenchError, Finding, Result, Series, Setting, at_least, at_most
from bench.peers import Missing
from bench.turns import in_turns, medians, percentile, ratio, ratios
from tests.support.ssh_host import Host
from tests.support.ssh_lab import Lab, running_lab, why_impossible

COUNT = 10_000
SUBMITTED = 1_000
ENDS = 40
ROUND_TRIP = 0.05
PROGRAM = "/bin/true"
NO_DELAY = "round trip 0 ms"
DELAY = f"round trip {ROUND_TRIP * 1000:g} ms"
FAST = f"remote jobs, {NO_DELAY}"
SLOW = f"remote jobs, {DELAY}"
LOOPS = {FAST: f"bare loop started with ssh, {NO_DELAY}", SLOW: f"bare loop started with ssh, {DELAY}"}
"""The loop logs in first, as the manager does."""
OURS = (FAST, SLOW)
BOTH = "remote jobs on two hosts"
PATIENCE = 1800.0
IN_MEMORY = "/dev/shm"
ENOUGH_ROOM = 2 << 30
DRIVER = Path(__file__).parent / "drivers" / "bare_loop.py"


def run(setting: Setting) -> Result:
    why_not = why_impossible()
    if why_not is not None:
        return Result(missing=[f"remote: {why_not}"])
    with running_lab(_directory_of_hosts()) as lab:
        result = measure(Bench(lab, setting.parallel), setting)
        if setting.cylc:
            _compare_with_cylc(lab, setting, result)
        return result


def _directory_of_hosts() -> str:
    """In memory where it has room: thousands of small files a round leave a disk busy for the rounds that follow, which
    then measure the disk."""
    try:
        room = shutil.disk_usage(IN_MEMORY).free
    except OSError:
        return "/tmp"
    return IN_MEMORY if room > ENOUGH_ROOM else "/tmp"


def _compare_with_cylc(lab: Lab, setting: Setting, result: Result) -> None:
    """Add one round of each on both hosts: tasks of cylc-flow, and jobs of ours."""
    bench = Bench(lab, setting.parallel)
    hosts = [bench.fast, bench.slow]
    count, tasks = setting.count(COUNT, 20), setting.count(PEER.count, 4)
    try:
        cylc = Cylc(lab, hosts, setting.directory)
        measured = in_turns({BOTH: lambda: bench.rate_of_both(count), PEER.name: lambda: cylc.rate(tasks)}, 1)
    except Missing as why:
        result.missing.append(f"remote: {why}")
        return
    ours, theirs = (medians(measured)[name] for name in (BOTH, PEER.name))
    note = f"{count:,} jobs at {ours:.1f}/s, {tasks:,} tasks at {theirs:.2f}/s, on two hosts; {cylc.version}; one round"
    result.findings.append(at_least("remote: cylc", f"{BOTH}, against {PEER.name}", ours / theirs, 100, note=note))


def measure(bench: Bench, setting: Setting) -> Result:
    count = setting.count(COUNT, 20)
    submitted = setting.count(SUBMITTED, 20)
    ends = setting.count(ENDS, 5)
    bench.slow.slow_down(ROUND_TRIP)
    bench.rate(bench.fast, 2)  # compiles modules to bytecode
    measured = in_turns(
        {
            LOOPS[FAST]: lambda: bench.loop_rate(bench.fast, count),
            LOOPS[SLOW]: lambda: bench.loop_rate(bench.slow, count),
            FAST: lambda: bench.rate(bench.fast, count),
            SLOW: lambda: bench.rate(bench.slow, count),
            "s until all are submitted": lambda: bench.submission(bench.slow, submitted),
            "ms until an end is known": lambda: median(bench.ends(bench.slow, ends)),
        },
        setting.rounds,
    )
    return Result(_findings(bench, measured, count, submitted), [_series(measured)])


def _findings(bench: Bench, measured: dict[str, list[float]], count: int, submitted: int) -> list[Finding]:
    rates = {name: values for name, values in measured.items() if name in (*LOOPS.values(), *OURS)}
    findings = [
        Finding(f"remote: {name}", f"{count:,} no-op jobs, {name}", value, "jobs/s")
        for name, value in medians(rates).items()
    ]
    for ours in OURS:
        loop = LOOPS[ours]
        rounds = ratios(measured, ours, loop)
        note = f"{min(rounds):.2f} to {max(rounds):.2f} in single rounds"
        what = f"{ours}, against a bare loop started with ssh"
        findings.append(at_least(f"remote: {ours} / loop", what, ratio(measured, ours, loop), 0.5, note=note))
    round_trips = 2000 * ROUND_TRIP
    known = median(measured["ms until an end is known"])
    slowest = f"99th percentile: {percentile(bench.ends_known, 99):.0f} ms"
    accepted = median(measured["s until all are submitted"])
    runs = f"{len(bench.logins)} runs"
    return [
        *findings,
        at_most("remote: logins", "most logins at a host in one run", max(bench.logins), 2, note=runs),
        at_most("remote: submission", f"command to the acceptance of {submitted:,} jobs, {SLOW}", accepted, 5, "s"),
        at_most("remote: end", f"end of a job to its transition, {SLOW}", known, round_trips, "ms", slowest),
    ]


def _series(measured: dict[str, list[float]]) -> Series:
    rates = {name: values for name, values in measured.items() if name in (*LOOPS.values(), *OURS)}
    return Series("No-op jobs on a remote host", "jobs/s", medians(rates), OURS)


class Bench:
    """Runs on citadel, with jobs on one of two hosts."""

    def __init__(self, lab: Lab, cores: int) -> None:
        self._lab = lab
        self._cores = cores
        self._numbers = 0
        self.fast = lab.wizard
        self.slow = lab.tower
        self.logins: list[int] = []
        """The number of logins of each run, at the host with the most."""
        self.ends_known: list[float] = []
        """Milliseconds from the end of a job on its host to its transition in the manager."""

    def loop_rate(self, host: Host, count: int) -> float:
        """Jobs a second of the bare loop, with the login."""
        name = self._next()
        host.write("bare_loop.py", DRIVER.read_text())
        arguments = ["/usr/bin/python3", "bare_loop.py", str(count), str(self._cores), name, PROGRAM]
        began = time.monotonic()
        _run(self._lab.citadel, "ssh", host.name, *arguments)
        seconds = time.monotonic() - began
        check_files(host.home / name, count)
        shutil.rmtree(host.home / name)
        return count / seconds

    def rate(self, host: Host, count: int) -> float:
        """Jobs a second of the whole command, from its start to its end."""
        name = self._prepare([host], count, self._cores, PROGRAM)
        began = time.monotonic()
        self._run_manager(name)
        seconds = time.monotonic() - began
        check_files(self.tree(host), count)
        self._remove([host], name)
        return count / seconds

    def rate_of_both(self, count: int) -> float:
        """Jobs a second with half of the jobs on each host, of the whole command."""
        hosts = [self.fast, self.slow]
        name = self._prepare(hosts, count, self._cores, PROGRAM)
        began = time.monotonic()
        self._run_manager(name)
        seconds = time.monotonic() - began
        self._remove(hosts, name)
        return count / seconds

    def submission(self, host: Host, count: int) -> float:
        """Seconds from the start of the command until the host has accepted all jobs."""
        name = self._prepare([host], count, count, PROGRAM)
        began = time.time()
        self._run_manager(name)
        accepted = [_moment(status["SUBMITTED"]) for status in self._statuses(host, count).values()]
        self._remove([host], name)
        return max(accepted) - began

    def ends(self, host: Host, count: int) -> list[float]:
        """Milliseconds from the end of each job on its host to its transition in the manager."""
        name = self._prepare([host], count, self._cores, "/bin/sleep", "0.2")
        self._run_manager(name, "--log", "debug")
        known = self._transitions(name)
        ended = {job: _moment(status["ENDED"]) for job, status in self._statuses(host, count).items()}
        self._remove([host], name)
        if unknown := ended.keys() - known.keys():
            raise BenchError(f"the log of the manager does not have the ends of {', '.join(sorted(unknown))}")
        waited = [1000 * (known[job] - ended[job]) for job in ended]
        self.ends_known += waited
        return waited

    def tree(self, host: Host) -> Path:
        """The directory of the only run on a host."""
        (tree,) = (host.home / "qcg-run").iterdir()
        return tree

    def _next(self) -> str:
        self._numbers += 1
        return f"round-{self._numbers}"

    def _prepare(self, hosts: list[Host], count: int, cores: int, *argv: str) -> str:
        """Write the requests of a run, and its hosts. Returns its directory, below the home directory of citadel."""
        name = self._next()
        names = [hosts[number % len(hosts)].name for number in range(count)]
        jobs = [pilot.job(f"job{number}", *argv, host=host) for number, host in enumerate(names)]
        citadel = self._lab.citadel
        citadel.write(f"{name}/requests.json", json.dumps([{"request": "submit", "jobs": jobs}]))
        tables = [f"[{host.name}]\ncores = {cores}\n" for host in hosts]
        citadel.write(f"{name}/hosts.toml", "".join(tables))
        return name

    def _run_manager(self, name: str, *options: str) -> None:
        before = self.fast.logins(), self.slow.logins()
        arguments = ["run", "requests.json", "--wd", ".", "--hosts", "hosts.toml", *options]
        # Citadel shows this project read-only. Modules are compiled once, as after an installation.
        bytecode = {"PYTHONPYCACHEPREFIX": f"{self._lab.citadel.home_there}/.bytecode"}
        _run(self._lab.citadel, "qcg-pm", *arguments, cwd=name, env=bytecode)
        self.logins.append(max(self.fast.logins() - before[0], self.slow.logins() - before[1]))

    def _remove(self, hosts: list[Host], name: str) -> None:
        for host in hosts:
            shutil.rmtree(self.tree(host))
        shutil.rmtree(self._lab.citadel.home / name)

    def _statuses(self, host: Host, count: int) -> dict[str, dict[str, str]]:
        """The status files of all jobs, by name."""
        found = {}
        for job in (self.tree(host) / "log" / "job" / "1").iterdir():
            lines = (job / "NN" / "job.status").read_text().splitlines()
            found[job.name] = dict(line.split("=", 1) for line in lines if line)
        if len(found) != count:
            raise BenchError(f"{count} jobs have run, and {len(found)} have status files")
        return found

    def _transitions(self, name: str) -> dict[str, float]:
        """When the manager learnt that jobs had succeeded, from its log."""
        log = self._lab.citadel.home / name / "service.log"
        known = {}
        for line in log.read_text().splitlines():
            words = line.split()
            if words[-1] == "SUCCEED":
                known[words[-2]] = datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        return known


def _run(host: Host, *argv: str, **options: Any) -> None:
    done = host.run(*argv, timeout=PATIENCE, check=False, **options)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)} on {host.name} failed:\n{done.stdout}{done.stderr}")


def _files_of(tree: Path, job: str) -> set[str]:
    """The files, directories and links that a job has in a run directory, with their kinds."""
    found = set()
    for top in (tree / "log" / "job" / "1" / job, tree / "work" / "1" / job):
        for path in (top, *top.rglob("*")):
            found.add(f"{kind_of(path)} {path.relative_to(tree)}")
    return found


def kind_of(path: Path) -> str:
    return "link" if path.is_symlink() else "directory" if path.is_dir() else "file"


def check_files(tree: Path, count: int) -> None:
    """Check that the bare loop, or a run, has made the same files, and that for each job."""
    last = f"job{count - 1}"
    wanted = _expected_files(last)
    found = _files_of(tree, last)
    if found != wanted:
        raise BenchError(f"{tree.name} has other files for {last}: {', '.join(sorted(found ^ wanted))}")
    made = len(os.listdir(tree / "log" / "job" / "1"))
    if made != count:
        raise BenchError(f"{tree.name} has directories of {made} jobs, and {count} were run")


def _expected_files(job: str) -> set[str]:
    attempt = f"log/job/1/{job}/01"
    files = {f"file {attempt}/{name}" for name in ("job", "job.out", "job.err", "job.status")}
    directories = {f"directory {path}" for path in (f"log/job/1/{job}", attempt, f"work/1/{job}")}
    return {f"link log/job/1/{job}/NN", *directories, *files}


def _moment(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()
