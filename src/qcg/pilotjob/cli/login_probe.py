"""One login with `ssh -v`, split into its steps by the output of ssh."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

_CONNECTED = re.compile(
    r"Connection established|fd \d+ clearing O_NONBLOCK|Local version string|Remote protocol version"
)
_KNOWN = re.compile(r"is known and matches the|Host '.*' is known")
_AUTHENTICATED = re.compile(r"Authenticated to .*? using \"([^\"]*)\"|Authenticated to|Authentication succeeded")
_SHARED = re.compile(r"mux_client_request_session: master session id|auto-mux: Trying existing master")
_CHATTER = re.compile(r"debug\d: |OpenSSH_|Authenticated to |Transferred: |Bytes per second")
_MOST_BYTES = 1 << 20


class Login(NamedTuple):
    """The events of a login. Times are seconds since its begin; None: it did not come that far."""

    connected: float | None
    known: float | None
    authenticated: float | None
    method: str
    """How the user was authenticated."""
    is_shared: bool
    """It used a connection that was open already."""
    exit_code: int | None
    """None: it took too long."""
    seconds: float
    output: str
    """Data from stdout: the output of login scripts, where the far command writes nothing."""
    errors: str
    """Data from stderr, without the lines of `-v`."""


async def log_in(argv: Sequence[str], patience: float) -> Login:
    """Run an ssh command with `-v` and without input. Raises OSError when it cannot be started."""
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=_MOST_BYTES,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[tuple[float, str]] = []
    output: list[bytes] = []

    async def read_errors(stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            lines.append((time.monotonic() - begun, line.decode("utf-8", "replace").rstrip()))

    async def read_output(stream: asyncio.StreamReader) -> None:
        while data := await stream.read(1 << 16):
            output.append(data)

    code: int | None = None
    reading = asyncio.gather(read_errors(process.stderr), read_output(process.stdout))
    try:
        await asyncio.wait_for(reading, patience)
        code = await process.wait()
    except (asyncio.TimeoutError, TimeoutError):
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _login(lines, b"".join(output), code, time.monotonic() - begun)


def _login(lines: list[tuple[float, str]], output: bytes, code: int | None, seconds: float) -> Login:
    def first(pattern: re.Pattern[str]) -> float | None:
        return next((at for at, line in lines if pattern.search(line)), None)

    found = next((match for _, line in lines if (match := _AUTHENTICATED.search(line))), None)
    method = (found.group(1) or "") if found is not None and found.lastindex else ""
    return Login(
        connected=first(_CONNECTED),
        known=first(_KNOWN),
        authenticated=first(_AUTHENTICATED),
        method=f"with {method}" if method else "",
        is_shared=first(_SHARED) is not None,
        exit_code=code,
        seconds=seconds,
        output=output.decode("utf-8", "replace").strip(),
        errors="\n".join(line for _, line in lines if not _CHATTER.match(line)),
    )
