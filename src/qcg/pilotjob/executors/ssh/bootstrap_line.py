"""The first line that a bootstrapped far command reads: Python code that fetches the rest of the program.

The dialogue, after that line:

    near -> far     MARKER DIGEST LENGTH
    far  -> near    MARKER have                 the program is kept there, by its digest
                    MARKER need                 LENGTH bytes follow from the near side
    far             continues in the same process as `DIGEST.pyz SUBCOMMAND RUN`

The near side sends nothing behind the first two lines before it has the answer, and the far side reads exactly LENGTH
bytes, so the program finds its input unread on descriptor 0.
"""

from __future__ import annotations

from qcg.pilotjob.executors.ssh.zipapp import FarProgram

KEPT_FOR = 30 * 86400
"""Seconds after its last use for which a program of another version is kept on a host."""

# Python 3.6 reads this. It changes nothing but the directory ~/.qcg-pm.
_CODE = """
import hashlib, os, runpy, sys, time
def digest_of(path):
    try:
        with open(path, "rb") as program:
            return hashlib.sha256(program.read()).hexdigest()
    except OSError:
        return ""
def answer(word):
    os.write(1, ("%%s %%s\\n" %% (marker, word)).encode("ascii"))
def receive(length):
    parts = []
    while length:
        part = sys.stdin.buffer.raw.read(min(length, 65536))
        if not part:
            sys.exit("qcg-pm: the connection ended while the program was received")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
def keep(program):
    if hashlib.sha256(program).hexdigest() != digest:
        sys.exit("qcg-pm: the program arrived damaged")
    umask = os.umask(0o077)
    os.makedirs(directory, exist_ok=True)
    temporary = "%%s.%%s.%%d" %% (path, os.uname()[1], os.getpid())
    with open(temporary, "wb") as new:
        new.write(program)
    os.rename(temporary, path)
    os.umask(umask)
    for name in os.listdir(directory):
        other = os.path.join(directory, name)
        try:
            if ".pyz" in name and os.stat(other).st_mtime < time.time() - %(kept_for)d:
                os.unlink(other)
        except OSError:
            pass
marker, digest, length = sys.stdin.buffer.readline().decode("ascii").split()
directory = os.path.join(os.path.expanduser("~"), ".qcg-pm")
path = os.path.join(directory, digest + ".pyz")
try:
    if digest_of(path) == digest:
        answer("have")
        os.utime(path, None)
    else:
        answer("need")
        keep(receive(int(length)))
except OSError as error:
    sys.exit("qcg-pm: the program cannot be kept in %%s: %%s" %% (directory, error.strerror))
sys.argv[0] = path
runpy.run_path(path, run_name="__main__")
"""

_LINE = b"exec(%s)\n" % ascii(_CODE % {"kept_for": KEPT_FOR}).encode("ascii")


def first_lines(marker: str, program: FarProgram) -> bytes:
    """The lines that the near side sends before it waits for the answer."""
    return _LINE + f"{marker} {program.digest} {len(program.content)}\n".encode("ascii")


def is_needed(answer: str) -> bool:
    """Whether the far side needs the program. `answer`: its line, without the marker. Raises ValueError."""
    word = answer.strip()
    if word not in ("have", "need"):
        raise ValueError(f"the far side answered {word[:80]!r}")
    return word == "need"
