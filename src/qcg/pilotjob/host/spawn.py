"""Starts one process from a `Launch`: own session, own streams, own cores, nothing inherited by accident.

Everything is tried first and explained afterwards, so that a good launch pays for no check.
"""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
from typing import Callable, Dict, FrozenSet, List, Optional, Tuple

from qcg.pilotjob.host import start_errors
from qcg.pilotjob.host.captured_output import CapturedOutput
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.host.start_errors import StartDeadlinePassed, Unstartable

REPORT_DESCRIPTOR = 3
"""Where a setup wrapper writes what went wrong."""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_DEFAULT_PATH = os.defpath.encode("ascii")
_PROGRAMS_REMEMBERED = 1000
_MESSAGE_LENGTH = 1000
_ENVIRONMENTS_REMEMBERED = 100

Prepared = Tuple[
    bytes, List[bytes], List[bytes], bytes, Optional[bytes], Optional[bytes], Optional[Tuple[int, ...]], bool
]
"""Program, argv, environment (`name=value`), wd, stdout, stderr, cores, whether streams without a file are captured."""


class Spawner:
    """Knows what all jobs of this process share: base environment, own cores, where programs are."""

    def __init__(
        self,
        log: Callable[[str], None],
        is_start_deadline_over: Callable[[], bool] = lambda: False,
        open_files: int = 0,
    ) -> None:
        """`is_start_deadline_over` is called right before the start: all steps before it may wait for a file system.
        `open_files`: the soft limit of open files of jobs; 0: that of this process."""
        self._log = log
        self._is_start_deadline_over = is_start_deadline_over
        self._environment = dict(os.environb)
        self._environments: Dict[Tuple[str, ...], Dict[bytes, bytes]] = {}
        self._settings: Dict[Tuple[Tuple[str, ...], Tuple[str, ...]], List[bytes]] = {}
        self._cores: FrozenSet[int] = frozenset(os.sched_getaffinity(0))
        self._binding_works = True
        self._programs: Dict[Tuple[bytes, bytes], bytes] = {}
        self.null = open_null_above_standard_streams()
        _keep_descriptors_from_jobs()
        self._limited: Optional[_Limited] = None
        spawn = _posix_spawn()
        if spawn is not None and open_files:
            spawn = self._limited = _Limited(spawn, open_files, self.null)
        self._spawn: _Spawn = spawn or _Popen(open_files)

    def close(self) -> None:
        if self._limited is not None:
            self._limited.close()
        os.close(self.null)

    def start(self, launch: Launch, captured: Optional[CapturedOutput] = None) -> Tuple[int, int]:
        """The pid, and the descriptor to read a setup wrapper's report from (-1 without one). Or `Unstartable`.

        `captured` gives the streams for which the launch names no file."""
        try:
            return self._start(launch, captured)
        except ValueError as error:
            # A zero byte, half a surrogate pair or a "=" in a name: no program can be given that.
            raise Unstartable(start_errors.not_passable(launch, error)) from None

    def _start(self, launch: Launch, captured: Optional[CapturedOutput]) -> Tuple[int, int]:
        argv = [_bytes(argument) for argument in launch.argv]
        environment = self._environment_of(launch)
        _enter(launch.wd)
        ours: List[int] = []
        report = -1
        try:
            stdin, stdout, stderr = self._open_streams(launch, captured, ours)
            descriptors = [stdin, stdout, stderr]
            if launch.setup:
                report, writer = _pipe()
                ours.append(writer)
                descriptors.append(writer)
            pid = self._run(launch, argv, environment, descriptors)
        except BaseException:
            if report >= 0:
                os.close(report)
            raise
        finally:
            for descriptor in ours:
                os.close(descriptor)
        return pid, report

    def prepared(self, launch: Launch) -> Optional[Prepared]:
        """What others need to start it just as `start` does, as long as nothing goes wrong. `None`: only `start` can do
        it, or can say why not."""
        if launch.setup or launch.stdin is not None or not launch.argv or not launch.argv[0]:
            return None
        try:
            argv = [_bytes(argument) for argument in launch.argv]
            environment = self._settings_besides(tuple(launch.unset), tuple(launch.env))
            environment += [_bytes("%s=%s" % setting) for setting in launch.env.items()]
            wd = _bytes(launch.wd)
            if b"PWD" in self._environment_without(tuple(launch.unset)) and "PWD" not in launch.env:
                environment.append(b"PWD=" + wd)
            program = argv[0] if b"/" in argv[0] else self._find(argv[0], self._path_of(launch))
            stdout = None if launch.stdout is None else _bytes(launch.stdout)
            stderr = None if launch.stderr is None else _bytes(launch.stderr)
        except (ValueError, Unstartable):
            return None
        if program is not argv[0] and not program.startswith(b"/"):
            return None
        bound = launch.cores is not None and self._has_to_bind(launch.cores)
        return program, argv, environment, wd, stdout, stderr, launch.cores if bound else None, bool(launch.output)

    def _settings_besides(self, unset: Tuple[str, ...], names: Tuple[str, ...]) -> List[bytes]:
        """A list of what a job has from the host's own environment when it sets `names` itself."""
        settings = self._settings.get((unset, names))
        if settings is None:
            if any(not name or "=" in name for name in names):
                raise ValueError("illegal environment variable name")
            own = {b"PWD", *map(_bytes, names)}
            environment = self._environment_without(unset)
            settings = [name + b"=" + value for name, value in environment.items() if name not in own]
            if len(self._settings) >= _ENVIRONMENTS_REMEMBERED:
                self._settings.clear()
            self._settings[unset, names] = settings
        return settings.copy()

    def _path_of(self, launch: Launch) -> bytes:
        path = launch.env.get("PATH")
        if path is not None:
            return _bytes(path)
        return self._environment_without(tuple(launch.unset)).get(b"PATH", _DEFAULT_PATH)

    def _environment_of(self, launch: Launch) -> Dict[bytes, bytes]:
        environment = self._environment_without(tuple(launch.unset)).copy()
        if b"PWD" in environment:
            environment[b"PWD"] = _bytes(launch.wd)
        for name, value in launch.env.items():
            environment[name.encode("utf-8", "surrogateescape")] = value.encode("utf-8", "surrogateescape")
        return environment

    def _environment_without(self, unset: Tuple[str, ...]) -> Dict[bytes, bytes]:
        """The host's own. The same few names are left out again and again."""
        environment = self._environments.get(unset)
        if environment is None:
            names = {_bytes(name) for name in unset}
            beginnings = tuple(name[:-1] for name in names if name.endswith(b"*"))
            environment = {
                name: value
                for name, value in self._environment.items()
                if name not in names and not name.startswith(beginnings)
            }
            if len(self._environments) >= _ENVIRONMENTS_REMEMBERED:
                self._environments.clear()
            self._environments[unset] = environment
        return environment

    def _open_streams(
        self, launch: Launch, captured: Optional[CapturedOutput], ours: List[int]
    ) -> Tuple[int, int, int]:
        """The working directory has been entered: their paths are relative to it."""
        stdin = stdout = stderr = self.null
        if captured is not None:
            stdout = captured.stdout if captured.stdout >= 0 else stdout
            stderr = captured.stderr if captured.stderr >= 0 else stderr
        if launch.stdin is not None:
            stdin = _open_for_reading(launch.stdin)
            ours.append(stdin)
        if launch.stdout is not None:
            stdout = _open_for_writing(launch.stdout, "stdout")
            ours.append(stdout)
        if launch.stderr is not None:
            if launch.stderr == launch.stdout:
                stderr = stdout
            else:
                stderr = _open_for_writing(launch.stderr, "stderr")
                ours.append(stderr)
        return stdin, stdout, stderr

    def _run(self, launch: Launch, argv: List[bytes], environment: Dict[bytes, bytes], descriptors: List[int]) -> int:
        if not argv or not argv[0]:
            raise Unstartable("The job names no program to start.")
        path = environment.get(b"PATH", _DEFAULT_PATH)

        def spawn_in_time(program: bytes) -> int:
            if self._is_start_deadline_over():
                raise StartDeadlinePassed
            return self._spawn(program, argv, environment, descriptors)

        bound = launch.cores is not None and self._bind(launch.cores)
        try:
            program = argv[0] if b"/" in argv[0] else self._find(argv[0], path)
            try:
                return spawn_in_time(program)
            except (FileNotFoundError, PermissionError):
                # A remembered program may have moved.
                self._programs.clear()
                again = argv[0] if b"/" in argv[0] else self._find(argv[0], path)
                if again == program:
                    raise
                return spawn_in_time(again)
        except OSError as error:
            raise start_errors.refusal(error, program, argv, environment, launch.wd) from None
        finally:
            if bound:
                self._unbind()

    def _find(self, name: bytes, path: bytes) -> bytes:
        program = self._programs.get((path, name))
        if program is None:
            program = _look_up(name, path)
            # What a relative entry of PATH finds depends on the working directory.
            if program.startswith(b"/"):
                if len(self._programs) >= _PROGRAMS_REMEMBERED:
                    self._programs.clear()
                self._programs[path, name] = program
        return program

    def _has_to_bind(self, cores: Tuple[int, ...]) -> bool:
        return self._binding_works and self._cores != frozenset(cores)

    def _bind(self, cores: Tuple[int, ...]) -> bool:
        """Take the job's cores myself: the child has them from its first instruction."""
        if not self._has_to_bind(cores):
            return False
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:
            self._binding_works = False
            self._log(
                "Cannot bind to cores %s (%s); jobs are started without binding from here on."
                % (",".join(map(str, cores)), error.strerror)
            )
            return False
        return True

    def _unbind(self) -> None:
        """The job runs by now: whatever goes wrong here is not its end."""
        try:
            os.sched_setaffinity(0, self._cores)
        except OSError as error:
            self._log("The agent itself stays on the cores of a job: %s." % error.strerror)


def _bytes(text: str) -> bytes:
    """As the manager wrote it, whatever locale this host has."""
    return text.encode("utf-8", "surrogateescape")


def _enter(wd: str) -> None:
    # Always, even if it seems to be the current one: the last job may have moved that away and made a new one.
    path = _bytes(wd)
    try:
        os.chdir(path)
    except FileNotFoundError:
        try:
            os.makedirs(path, exist_ok=True)
            os.chdir(path)
        except OSError as error:
            raise Unstartable("The working directory %s cannot be made: %s." % (wd, error.strerror)) from None
    except OSError as error:
        raise Unstartable("The working directory %s cannot be entered: %s." % (wd, error.strerror)) from None


def _open_for_reading(path: str) -> int:
    try:
        descriptor = os.open(_bytes(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise Unstartable(start_errors.no_stdin(path, error)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "a named pipe, which only the job itself can wait for"
        raise Unstartable("The stdin file %s is %s." % (path, kind))
    os.set_blocking(descriptor, True)
    return descriptor


def _open_for_writing(path: str, stream: str) -> int:
    # Not blocking: a named pipe without a reader would hold up all jobs of this host.
    name = _bytes(path)
    try:
        try:
            descriptor = os.open(name, _WRITE | os.O_NONBLOCK, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(name) or b".", exist_ok=True)
            descriptor = os.open(name, _WRITE | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise Unstartable(start_errors.no_output(stream, path, error)) from None
    os.set_blocking(descriptor, True)
    return descriptor


def _pipe() -> Tuple[int, int]:
    try:
        reader, writer = os.pipe()
    except OSError as error:
        raise Unstartable("The pipe for the report of the job's setup cannot be made: %s." % error.strerror) from None
    os.set_blocking(reader, False)
    # Above descriptor 3, which it becomes in the job.
    above = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, REPORT_DESCRIPTOR + 1)
    os.close(writer)
    return reader, above


def read_report(report: int) -> str:
    """What a setup wrapper has written, if anything."""
    if report < 0:
        return ""
    try:
        text = os.read(report, 4 * _MESSAGE_LENGTH)
    except BlockingIOError:
        # Nothing written, but some process of the job still holds the other end.
        return ""
    return text.decode("utf-8", "replace").strip()[:_MESSAGE_LENGTH]


def _look_up(name: bytes, path: bytes) -> bytes:
    not_executable = b""
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            not_executable = not_executable or candidate
    raise Unstartable(start_errors.not_found(name, path, not_executable))


def open_null_above_standard_streams() -> int:
    """Also fills 0, 1 and 2 where this process was started without them."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            return descriptor


def _keep_descriptors_from_jobs() -> None:
    """What this process itself was given by its parent is not for its jobs."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError as error:
                # The one that read the directory is closed by now.
                if error.errno != errno.EBADF:
                    raise


_Spawn = Callable[[bytes, List[bytes], Dict[bytes, bytes], List[int]], int]


def _posix_spawn() -> Optional[_Spawn]:
    """The fast way, where Python (3.8) and C library (glibc 2.26) have it."""
    if not hasattr(os, "posix_spawn"):
        return None
    try:
        os.posix_spawn(b"/", [b"/"], {}, setsid=True)
    except NotImplementedError:
        return None
    except OSError:
        pass
    spawn, dup2 = os.posix_spawn, os.POSIX_SPAWN_DUP2
    ignored = [number for number in _signals() if signal.getsignal(number) == signal.SIG_IGN]

    def start(program: bytes, argv: List[bytes], environment: Dict[bytes, bytes], descriptors: List[int]) -> int:
        actions = [(dup2, descriptor, target) for target, descriptor in enumerate(descriptors)]
        return spawn(program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=ignored)

    return start


class _Limited:
    """The fast way for jobs with a lower limit of open files than this process.

    A child has the limits that its parent has at that moment: they are lowered for each start. Descriptors above the
    limit stay open then, but the C library passes none of them on. So they are copied to low ones, which are reserved.
    """

    def __init__(self, spawn: _Spawn, open_files: int, null: int) -> None:
        self._spawn = spawn
        self._open_files = open_files
        self._null = null
        above = REPORT_DESCRIPTOR + 1
        self._reserved = [fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, above) for _ in range(above)]

    def close(self) -> None:
        for descriptor in self._reserved:
            os.close(descriptor)

    def __call__(
        self, program: bytes, argv: List[bytes], environment: Dict[bytes, bytes], descriptors: List[int]
    ) -> int:
        own, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        low = list(descriptors)
        copies = []
        for index, descriptor in enumerate(descriptors):
            if descriptor >= self._open_files:
                low[index] = self._reserved[index]
                copies.append(low[index])
                os.dup2(descriptor, low[index], inheritable=False)
        _limit_open_files(self._open_files)
        try:
            return self._spawn(program, argv, environment, low)
        finally:
            _limit_open_files(own)
            for descriptor in copies:
                os.dup2(self._null, descriptor, inheritable=False)


class _Popen:
    """The way for old Pythons and C libraries: a fork, some ten times slower."""

    def __init__(self, open_files: int) -> None:
        self._open_files = open_files

    def __call__(
        self, program: bytes, argv: List[bytes], environment: Dict[bytes, bytes], descriptors: List[int]
    ) -> int:
        def prepare() -> None:
            for number in _signals():
                if signal.getsignal(number) == signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if self._open_files:
                _limit_open_files(self._open_files)
            if len(descriptors) > REPORT_DESCRIPTOR:
                os.dup2(descriptors[REPORT_DESCRIPTOR], REPORT_DESCRIPTOR)

        _occupy(REPORT_DESCRIPTOR)
        process = subprocess.Popen(
            argv,
            executable=program,
            env=environment,
            stdin=descriptors[0],
            stdout=descriptors[1],
            stderr=descriptors[2],
            start_new_session=True,
            close_fds=False,
            preexec_fn=prepare,
        )
        # It is reaped by the host, not by the subprocess module.
        process.returncode = 0
        return process.pid


def _limit_open_files(soft: int) -> None:
    """Set the soft limit, up to the hard limit, which others may have lowered since this process was started."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # lowered at this moment
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))


def _occupy(descriptor: int) -> None:
    """Keep it from becoming a pipe of the subprocess module, which the job's report would overwrite."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)


def _signals() -> List[int]:
    return [number for number in range(1, signal.NSIG) if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]
