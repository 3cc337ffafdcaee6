"""Starts the process of a `Launch` in its own session, with its own streams and cores and no inherited descriptors.

Nothing is checked before the start. The reason of a failure is searched for afterwards, so a good launch pays for no
check.
"""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
from typing import Callable, Dict, FrozenSet, List, Optional, Tuple, Union

from qcg.pilotjob.host import start_errors
from qcg.pilotjob.host.captured_output import CapturedOutput
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.host.start_errors import StartDeadlinePassed, Unstartable
from qcg.pilotjob.host.streamed_output import StreamedOutput

REPORT_DESCRIPTOR = 3
"""Descriptor to which a setup wrapper writes its error."""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_DEFAULT_PATH = os.defpath.encode("ascii")
_MOST_PROGRAMS = 1000
_MESSAGE_LENGTH = 1000
_MOST_ENVIRONMENTS = 100

Prepared = Tuple[
    bytes, List[bytes], List[bytes], bytes, Optional[bytes], Optional[bytes], Optional[Tuple[int, ...]], bool
]
"""Program, argv, environment (`name=value`), wd, stdout, stderr, cores, whether streams without a file are captured."""

Output = Union[CapturedOutput, StreamedOutput]
"""Descriptors for streams without a file."""


class Spawner:
    """Starts processes, with caches for all jobs of this host: base environments and paths of programs."""

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
        self._limited: Optional[_LimitedSpawn] = None
        spawn = _posix_spawn()
        if spawn is not None and open_files:
            spawn = self._limited = _LimitedSpawn(spawn, open_files, self.null)
        self._spawn: _Spawn = spawn or _PopenSpawn(open_files)

    def close(self) -> None:
        if self._limited is not None:
            self._limited.close()
        os.close(self.null)

    def start(self, launch: Launch, captured: Optional[Output] = None) -> Tuple[int, int]:
        """Start a process. Returns its pid and the descriptor of the report of its setup wrapper (-1 without one).

        `captured` has the streams for which the launch names no file. Raises Unstartable.
        """
        try:
            return self._start(launch, captured)
        except ValueError as error:
            # A zero byte, half a surrogate pair, or "=" in the name of a variable cannot be passed to a program.
            raise Unstartable(start_errors.not_passable(launch, error)) from None

    def _start(self, launch: Launch, captured: Optional[Output]) -> Tuple[int, int]:
        argv = [_bytes(argument) for argument in launch.argv]
        environment = self._environment_of(launch)
        _change_directory(launch.wd)
        opened: List[int] = []
        report = -1
        try:
            stdin, stdout, stderr = self._open_streams(launch, captured, opened)
            descriptors = [stdin, stdout, stderr]
            if launch.setup:
                report, writer = _pipe()
                opened.append(writer)
                descriptors.append(writer)
            pid = self._run(launch, argv, environment, descriptors)
        except BaseException:
            if report >= 0:
                os.close(report)
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return pid, report

    def prepared(self, launch: Launch) -> Optional[Prepared]:
        """The arguments with which a lane runner can start a launch as `start` does. `None`: only `start` can start it,
        or explain why that fails."""
        if launch.setup or launch.stdin is not None or launch.memory or not launch.argv or not launch.argv[0]:
            return None
        try:
            argv = [_bytes(argument) for argument in launch.argv]
            environment = self._base_settings(tuple(launch.unset), tuple(launch.env))
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

    def _base_settings(self, unset: Tuple[str, ...], names: Tuple[str, ...]) -> List[bytes]:
        """Settings (`name=value`) of the host's own environment without `unset`, and without `names` set by the job."""
        settings = self._settings.get((unset, names))
        if settings is None:
            if any(not name or "=" in name for name in names):
                raise ValueError("illegal environment variable name")
            own = {b"PWD", *map(_bytes, names)}
            environment = self._environment_without(unset)
            settings = [name + b"=" + value for name, value in environment.items() if name not in own]
            if len(self._settings) >= _MOST_ENVIRONMENTS:
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
        """The host's own environment without these variables. Cached: most jobs leave out the same ones."""
        environment = self._environments.get(unset)
        if environment is None:
            names = {_bytes(name) for name in unset}
            prefixes = tuple(name[:-1] for name in names if name.endswith(b"*"))
            environment = {
                name: value
                for name, value in self._environment.items()
                if name not in names and not name.startswith(prefixes)
            }
            if len(self._environments) >= _MOST_ENVIRONMENTS:
                self._environments.clear()
            self._environments[unset] = environment
        return environment

    def _open_streams(self, launch: Launch, captured: Optional[Output], opened: List[int]) -> Tuple[int, int, int]:
        """Open the standard streams. Their paths are relative to the working directory, which is the current one."""
        stdin = stdout = stderr = self.null
        if captured is not None:
            stdout = captured.stdout if captured.stdout >= 0 else stdout
            stderr = captured.stderr if captured.stderr >= 0 else stderr
        if launch.stdin is not None:
            stdin = _open_for_reading(launch.stdin)
            opened.append(stdin)
        if launch.stdout is not None:
            stdout = _open_for_writing(launch.stdout, "stdout")
            opened.append(stdout)
        if launch.stderr is not None:
            if launch.stderr == launch.stdout:
                stderr = stdout
            else:
                stderr = _open_for_writing(launch.stderr, "stderr")
                opened.append(stderr)
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
                # The cached path of the program may be outdated.
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
                if len(self._programs) >= _MOST_PROGRAMS:
                    self._programs.clear()
                self._programs[path, name] = program
        return program

    def _has_to_bind(self, cores: Tuple[int, ...]) -> bool:
        return self._binding_works and self._cores != frozenset(cores)

    def _bind(self, cores: Tuple[int, ...]) -> bool:
        """Bind this thread to the cores of the job, so that the child has them from its first instruction."""
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
        """Bind this thread to its own cores again. Errors are only logged, because the job runs already."""
        try:
            os.sched_setaffinity(0, self._cores)
        except OSError as error:
            self._log("The agent itself stays bound to the cores of a job: %s." % error.strerror)


def _bytes(text: str) -> bytes:
    """Encode as the manager does, whatever the locale of this host."""
    return text.encode("utf-8", "surrogateescape")


def _change_directory(wd: str) -> None:
    # Also when it is the current directory: a job may have moved that and made a new one in its place.
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
    """The error that a setup wrapper wrote; empty without one."""
    if report < 0:
        return ""
    try:
        text = os.read(report, 4 * _MESSAGE_LENGTH)
    except BlockingIOError:
        # Nothing was written, but a process of the job still has the pipe open.
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
    """Open /dev/null, and fill descriptors 0, 1 and 2 when this process was started without them."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            return descriptor


def _keep_descriptors_from_jobs() -> None:
    """Keep jobs from inheriting descriptors that this process has from its parent."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError as error:
                # The descriptor with which the directory was read is closed by now.
                if error.errno != errno.EBADF:
                    raise


_Spawn = Callable[[bytes, List[bytes], Dict[bytes, bytes], List[int]], int]


def _posix_spawn() -> Optional[_Spawn]:
    """The fast start with `os.posix_spawn`, where Python (3.8) and the C library (glibc 2.26) support it."""
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


class _LimitedSpawn:
    """The fast start for jobs with a lower limit of open files than this process.

    A child inherits the limits of its parent, which are lowered for each start. Descriptors above the limit stay open,
    but the C library cannot pass them on. So they are copied to low descriptors, which are reserved for that.
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


class _PopenSpawn:
    """The start with a fork for old Pythons and C libraries, about ten times slower."""

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
        # The job host reaps the process, not the subprocess module.
        process.returncode = 0
        return process.pid


def _limit_open_files(soft: int) -> None:
    """Set the soft limit, up to the hard limit, which may have been lowered since this process was started."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # lowered at this moment
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))


def _occupy(descriptor: int) -> None:
    """Keep the subprocess module from using this descriptor for a pipe, which the report would overwrite."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)


def _signals() -> List[int]:
    return [number for number in range(1, signal.NSIG) if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]
