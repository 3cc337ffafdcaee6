"""The batch system of a host, through the commands that the manager describes (`cluster/remote_queue.py`).

A list of batch jobs is believed only as a whole: if the command failed, or one line of its answer is not understood,
no job may be taken for gone. The jobs of the other lines are known nevertheless.
"""

import contextlib
import getpass
import os
import re
import signal
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from qcg.pilotjob.host.remote.errors import CommandError

MOST_IDS = 1000
"""Ids and names in one command: command lines have a largest length."""
_LONGEST_MESSAGE = 600
_SAFE_VALUE = re.compile(r"[\w@%+=:,./\[\]*-]+\Z", re.ASCII)
_FIELD = re.compile(r"\{(\w+)\}")
_OPTIONAL_PART = re.compile(r"\[([^\[\]]*)\]")
_OPTION = re.compile(r"--?[^\s\"'\\#-][^\s\"'\\#]*\Z")
"""The name of an option: one word, as a batch system splits the line of a directive."""


class BatchRefusal(Exception):
    """The batch system refused a command; the text has its words."""


class CannotAsk(Exception):
    """The batch system did not answer, or not in words that are understood. Nothing is known about its jobs, except for
    the jobs in `found`, which has the keys of the method that raised this."""

    def __init__(self, text: str, found: "Optional[Dict[str, BatchJob]]" = None) -> None:
        super().__init__(text)
        self.found: Dict[str, BatchJob] = found or {}


class BatchJob(NamedTuple):
    id: str
    name: str
    state: str


class BatchQueue:
    def __init__(self, described: Dict[str, Any]) -> None:
        """Raises CommandError for a description that this version does not understand."""
        try:
            self.name: str = described["name"]
            self.label: str = described["label"]
            self.grace = float(described["grace"])
            self.submit_poll_interval = float(described["submit_poll_interval"])
            self.poll_interval = float(described["poll_interval"])
            self.id_variable: str = described["id_variable"]
            self._timeout = float(described["timeout"])
            self._prefix: str = described["prefix"]
            self._directives: List[str] = described["directives"]
            self._reserved = frozenset(described["reserved"])
            self._variables: Dict[str, str] = described["variables"]
            self._submit: List[str] = described["submit"]
            self._list_jobs: List[str] = described["list_jobs"]
            self._find_jobs: List[str] = described["find_jobs"]
            self._list_ended: List[str] = described["list_ended"]
            self._kill: List[str] = described["kill"]
            self._signal: List[str] = described["signal"]
            self._waiting = frozenset(described["waiting"])
            self._over: Dict[str, str] = described["over"]
            self._submitted = re.compile(described["submitted"])
            self._job_line = re.compile(described["job_line"])
            self._ended_line = re.compile(described["ended_line"])
            self._unknown = re.compile(described["unknown"])
            self._unreachable = re.compile(described["unreachable"])
            self._hide: List[str] = described["hide"]
            self._keep = frozenset(described["keep"])
        except (KeyError, TypeError, ValueError, re.error) as error:
            text = (
                "The description of the batch system is not understood (%s): the versions of manager and host differ."
            )
            raise CommandError(text % error) from None

    # Batch scripts

    def directive_lines(self, fields: Dict[str, str], own: Dict[str, Any]) -> List[str]:
        """The directives of a batch script. `own`: options of the host and of the job.

        Raises BatchRefusal for an option that must not be given, or cannot be written in one line."""
        options: List[Tuple[str, str]] = []
        for template in self._directives:
            wanted = _without_missing_parts(template, fields)
            if _has_all(wanted, fields):
                name, between, value = wanted.partition("=" if wanted.startswith("--") else " ")
                options.append((_filled(name, fields), between + _quoted(_filled(value, fields)) if between else ""))
        options = [option for option in options if not (option[0].startswith("--") and option[0] in own)]
        for name, value in own.items():
            if _OPTION.match(name) is None:
                raise BatchRefusal("The directive %r is no option: write its name alone, without blanks." % name)
            reserved = self._reserved_in(name)
            if reserved:
                raise BatchRefusal(_reserved_text(name, reserved))
            for one in value if isinstance(value, list) else [value]:
                text = "" if one is None or one is True else str(one)
                between = "=" if name.startswith("--") else " "
                options.append((name, between + _quoted(text) if text else ""))
        lines = [self._prefix + name + value for name, value in options]
        for line in lines:
            if "\n" in line or "\r" in line or "\0" in line:
                raise BatchRefusal("The directive %r has several lines, and a batch script takes one." % line)
        return lines

    def _reserved_in(self, name: str) -> str:
        """The reserved option that a directive is or may be; empty for all others.

        Programs take abbreviations of long options, values attached to an option, and several short ones in a word."""
        name = name.partition("=")[0]
        if name in self._reserved:
            return name
        if name.startswith("--"):
            return next((one for one in sorted(self._reserved) if one.startswith(name)), "")
        return next(("-" + letter for letter in name[1:] if "-" + letter in self._reserved), "")

    # Commands

    def submit(self, script: str, directory: str, options: Sequence[str], held: int = -1) -> str:
        """Submit a batch script and return the id of the batch job. `held` is a descriptor that the command keeps open
        as long as it lives.

        Raises BatchRefusal when nothing was submitted, CannotAsk when that is not known."""
        hidden = frozenset(self._variables[option] for option in options if option in self._variables)
        command = [_filled(word, {"script": script, "directory": directory}) for word in self._submit]
        answer = self._run(command, directory, hidden, held)
        if self._unreachable.search(answer.said) is not None:
            raise CannotAsk("%s cannot be reached: %s" % (self.label, _in_one_line(answer.said)))
        if answer.code < 0:
            raise CannotAsk("`%s` was killed by signal %d" % (command[0], -answer.code))
        if answer.code:
            raise BatchRefusal("%s refused the job: %s" % (self.label, _in_one_line(answer.said)))
        for line in answer.output.splitlines():
            match = self._submitted.search(line)
            if match is not None:
                return str(match.group("id"))
        raise CannotAsk(
            "`%s` did not tell the id of the job: %s" % (command[0], _in_one_line(answer.said) or "nothing")
        )

    def list_jobs(self, names: Dict[str, str]) -> Dict[str, BatchJob]:
        """The batch jobs that the queue knows, by id. `names`: their unique names, by id; another batch job with the
        same id, as after a crash of the batch system, is not listed. Raises CannotAsk."""
        found: Dict[str, BatchJob] = {}
        unread = ""
        for part in _parts(list(names)):
            jobs, problem = self._list(_with_list(self._list_jobs, "ids", part))
            unread = unread or problem
            for job in jobs:
                if names.get(job.id) == job.name:
                    found[job.id] = job
        if unread:
            raise CannotAsk(unread, found)
        return found

    def find_jobs(self, names: Sequence[str]) -> Dict[str, BatchJob]:
        """The batch jobs that have one of these unique names, by name. Raises CannotAsk."""
        user = {"user": getpass.getuser()}
        found: Dict[str, BatchJob] = {}
        unread = ""
        for part in _parts(names):
            command = _with_list([_filled(word, user) for word in self._find_jobs], "names", part)
            jobs, problem = self._list(command)
            unread = unread or problem
            for job in jobs:
                # The one that runs or waits counts, where there are several.
                if job.name in part and (job.name not in found or self.cause(job.state) is None):
                    found[job.name] = job
        if unread:
            raise CannotAsk(unread, found)
        return found

    def ended_states(self, ids: Sequence[str]) -> Dict[str, str]:
        """The final states of batch jobs that the queue has forgotten, as far as the accounting knows them."""
        found: Dict[str, str] = {}
        for part in _parts(ids) if self._list_ended else ():
            try:
                answer = self._run(_with_list(self._list_ended, "ids", part))
            except (CannotAsk, BatchRefusal):
                return found
            matches = [self._ended_line.search(line) for line in answer.output.splitlines()] if not answer.code else []
            found.update((match.group("id"), match.group("state")) for match in matches if match is not None)
        return found

    def kill(self, ids: Sequence[str]) -> None:
        """End batch jobs that wait or run. Raises CannotAsk when some may continue."""
        for part in _parts(ids):
            self._order(_with_list(self._kill, "ids", part))

    def send_signal(self, ids: Sequence[str], number: int) -> None:
        """Send a signal to the first process of batch jobs. Raises CannotAsk."""
        for part in _parts(ids) if self._signal else ():
            words = [_filled(word, {"signal": str(number)}) for word in self._signal]
            self._order(_with_list(words, "ids", part))

    # States

    def is_waiting(self, state: str) -> bool:
        return state in self._waiting

    def cause(self, state: str) -> Optional[str]:
        """Why a batch job is over, as `cluster/remote_queue.py:Cause`; None when it is not over."""
        return self._over.get(state)

    def _list(self, command: List[str]) -> Tuple[List[BatchJob], str]:
        """The jobs of all lines that are understood, and a sentence about the first other one."""
        answer = self._run(command)
        if self._unreachable.search(answer.said) is not None:
            raise CannotAsk("%s cannot be reached: %s" % (self.label, _in_one_line(answer.said)))
        if answer.code and self._unknown.search(answer.said) is None:
            raise CannotAsk("`%s` failed: %s" % (command[0], _in_one_line(answer.said) or "code %d" % answer.code))
        jobs: List[BatchJob] = []
        unread = ""
        for line in answer.output.splitlines():
            match = self._job_line.search(line)
            if match is not None:
                jobs.append(BatchJob(match.group("id"), match.group("name"), match.group("state")))
            elif line.strip() and not unread:
                unread = "The answer of `%s` is not understood: %s" % (command[0], _in_one_line(line))
        return jobs, unread

    def _order(self, command: List[str]) -> None:
        answer = self._run(command)
        if answer.code and self._unknown.search(answer.said) is None:
            raise CannotAsk("`%s` failed: %s" % (command[0], _in_one_line(answer.said) or "code %d" % answer.code))

    def _run(
        self,
        command: List[str],
        directory: Optional[str] = None,
        hidden: "frozenset[str]" = frozenset(),
        held: int = -1,
    ) -> "_Answer":
        """Raises CannotAsk when the command does not answer in time, BatchRefusal when it cannot be started."""
        environment = {name: value for name, value in os.environ.items() if self._is_visible(name, hidden)}
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(held,) if held >= 0 else (),
                start_new_session=True,
            )
        except OSError as error:
            text = "The command %s of %s cannot be started: %s." % (command[0], self.label, error.strerror)
            raise (BatchRefusal if directory is not None else CannotAsk)(text) from None
        try:
            output, errors = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            _end_group(process)
            text = "`%s` had no answer in %g s and was killed; is %s up?" % (command[0], self._timeout, self.label)
            raise CannotAsk(text) from None
        out, err = (text.decode("utf-8", "replace") for text in (output, errors))
        return _Answer(process.returncode, out, err)

    def _is_visible(self, name: str, hidden: "frozenset[str]") -> bool:
        if name in hidden:
            return False
        if name in self._keep:
            return True
        return not any(name == rule or (rule.endswith("*") and name.startswith(rule[:-1])) for rule in self._hide)


class _Answer(NamedTuple):
    code: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        return self.errors.strip() or self.output.strip()


def _reserved_text(name: str, reserved: str) -> str:
    text = "The directive %s cannot be given, because the run depends on it" % reserved
    if name == reserved:
        return text + "."
    if name.startswith("--"):
        return "%s, and %s may be read as it." % (text, name)
    return "%s, and %s may be read as it; write the value of an option after its name." % (text, name)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # Another process of its own may keep the pipes open.
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _without_missing_parts(template: str, fields: Dict[str, str]) -> str:
    return _OPTIONAL_PART.sub(lambda part: part.group(1) if _has_all(part.group(1), fields) else "", template)


def _has_all(template: str, fields: Dict[str, str]) -> bool:
    return all(name in fields for name in _FIELD.findall(template))


def _filled(template: str, fields: Dict[str, str]) -> str:
    return _FIELD.sub(lambda match: fields.get(match.group(1), match.group(0)), template)


def _with_list(words: Sequence[str], field: str, values: Sequence[str]) -> List[str]:
    """A command for several ids or names: one word each, or a list inside a word."""
    command: List[str] = []
    for word in words:
        if word == "{%s}" % field:
            command += values
        else:
            command.append(word.replace("{%s}" % field, ",".join(values)))
    return command


def _parts(values: Sequence[str]) -> List[Sequence[str]]:
    return [values[first : first + MOST_IDS] for first in range(0, len(values), MOST_IDS)]


def _quoted(value: str) -> str:
    if not value or _SAFE_VALUE.match(value) is not None:
        return value
    return '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"')


def _in_one_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "; ".join(line for line in lines if line)[:_LONGEST_MESSAGE]
