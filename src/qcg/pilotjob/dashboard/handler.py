"""One connection of the dashboard: requests in, answers out, within limits of size and time."""

from __future__ import annotations

import io
import logging
import socket
import time
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, urlsplit

from qcg.pilotjob.dashboard.access import Access, Refused
from qcg.pilotjob.dashboard.api import JSON, Answer, Api, WrongRequest, error_content, problem_of, with_control
from qcg.pilotjob.dashboard.connections import Connections
from qcg.pilotjob.dashboard.feed import SummaryFeed
from qcg.pilotjob.dashboard.page_files import INDEX, PageFile
from qcg.pilotjob.journal.errors import JournalError

log = logging.getLogger(__name__)

MOST_HEAD = 32 << 10
"""Bytes of the request line and headers."""
MOST_BODY = 1 << 20
MOST_PARAMETERS = 50
SECONDS_FOR_REQUEST = 10.0
"""Seconds within which a whole request must arrive after its connection is open."""
SECONDS_IDLE = 60.0
"""Seconds after which a connection without a request is closed."""
SECONDS_FOR_STRANGERS = 3.0
"""Both limits until a first request with the token or the cookie has arrived."""
SECONDS_TO_SEND = 20.0
"""Seconds within which a client must accept an answer, or the next event."""
SECONDS_BETWEEN_SIGNS = 15.0
"""Seconds between two lines of an idle event stream."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src"
    " 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_COMMON = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Vary", "Cookie, Authorization, Origin"),
)
_TO_PAGE = b'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=./"><title>qcg-pm</title>'


class Parts(Protocol):
    """The interface of the server for its connections."""

    access: Access
    api: Api
    connections: Connections
    feed: SummaryFeed
    page: dict[str, PageFile]


class _TooMuch(OSError):
    """The client exceeds the limits of size or time."""


class RequestReader(io.RawIOBase):
    """Reads requests from a socket, each within a number of bytes and seconds."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = 0
        self._deadline = 0.0

    def begin(self, size: int, seconds: float) -> None:
        """Set the limits for the next bytes: their number, and the seconds within which they must arrive."""
        self._left = size
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._deadline - time.monotonic()
        if self._left <= 0 or seconds <= 0:
            raise _TooMuch("too much, or too slow")
        self._connection.settimeout(seconds)
        size = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= size
        return size


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, in a thread of its own."""

    protocol_version = "HTTP/1.1"
    server_version = "qcg-pm"
    sys_version = ""

    @property
    def parts(self) -> Parts:
        return cast(Parts, self.server)

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = RequestReader(self.connection)
        self._is_known = False
        # Small buffers: the limits count what is read ahead, too.
        self.rfile = io.BufferedReader(self._reader, 4096)

    def handle_one_request(self) -> None:
        self._status_sent = False
        self._reader.begin(1, SECONDS_IDLE if self._is_known else SECONDS_FOR_STRANGERS)
        try:
            if not self._wait_for_request():
                self.close_connection = True
                return
            super().handle_one_request()
        except _TooMuch:
            self.close_connection = True
            self._try_to_refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except (OSError, ValueError):  # the client is gone, or the server ends
            self.close_connection = True

    def _wait_for_request(self) -> bool:
        """Wait for the first byte of the next request; False at the end of the connection."""
        assert isinstance(self.rfile, io.BufferedReader)
        there = bool(self.rfile.peek(1))
        self._reader.begin(MOST_HEAD, SECONDS_FOR_REQUEST if self._is_known else SECONDS_FOR_STRANGERS)
        return there

    def _try_to_refuse(self, status: HTTPStatus) -> None:
        try:
            self.request_version, self.command = "HTTP/1.1", ""
            self._send(status, error_content("The request is too large, or arrives too slowly."), JSON)
        except OSError:
            pass

    # -- methods ----------------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, method: Any) -> None:
        try:
            if self.request_version == "HTTP/0.9":
                # Its answers have no headers, which keep browsers safe.
                self.request_version, self.close_connection = "HTTP/1.0", True
                raise WrongRequest("This version of HTTP is too old.", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            headers = _headers(self.headers)
            refused = self.parts.access.check_host(headers)
            if refused is not None:
                raise _refusal(refused)
            method(headers)
        except WrongRequest as wrong:
            self._send_error(wrong.status, str(wrong))
        except JournalError as error:
            problem = problem_of(error)
            self._send_error(problem.status, str(problem))
        except OSError:
            raise
        except Exception:
            log.exception("a request could not be answered")
            if self._status_sent:
                raise
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The dashboard failed to answer; its output says why.")

    def _get(self, headers: dict[str, str]) -> None:
        if "Content-Length" in headers or "Transfer-Encoding" in headers:
            self.close_connection = True  # a body, which is not read
        path, parameters = _target(self.path)
        access = self.parts.access
        if _is_page(path) and "token" in parameters:
            self._exchange(headers, parameters["token"])
            return
        file = self._page_file(path)
        if file is not None:
            self._let_in(access.check_page(headers))
            self._send_file(file, headers)
            return
        address = _address(path)
        self._let_in(access.check_read(headers))
        if address == "api/events":
            self._send_events()
            return
        read = self.parts.api.reads.get(address)
        if read is None:
            raise WrongRequest("There is nothing at this address.", HTTPStatus.NOT_FOUND)
        self._send_answer(read(parameters))

    def _post(self, headers: dict[str, str]) -> None:
        self.close_connection = True  # unless the whole body is read
        path, _ = _target(self.path)
        self._let_in(self.parts.access.check_change(headers))
        if _address(path) != "api/act":
            raise WrongRequest("There is nothing at this address.", HTTPStatus.NOT_FOUND)
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
            raise WrongRequest("Send JSON.", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        length = headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in headers:
            raise WrongRequest("Say how long the request is.", HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 9 or int(length) > MOST_BODY:
            raise WrongRequest("The request is too large.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self._reader.begin(int(length) + 1, SECONDS_FOR_REQUEST)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return
        self.close_connection = headers.get("Connection", "").lower() == "close"
        self._send_answer(self.parts.api.act(body))

    def _let_in(self, refused: Refused | None) -> None:
        """Keep the connection of an authorized client. Raises WrongRequest for others."""
        if refused is not None:
            raise _refusal(refused)
        if not self._is_known:
            self._is_known = True
            self.parts.connections.set_known(self.connection)

    # -- answers ----------------------------------------------------------------------------------------------------

    def _exchange(self, headers: dict[str, str], tokens: list[str]) -> None:
        """Exchange the token for the cookie, and redirect to the page without the token in its address."""
        if len(tokens) != 1 or not self.parts.access.is_token(tokens[0]):
            raise WrongRequest(
                "This token is not that of this dashboard: open the address that `qcg-pm dashboard` printed last.",
                HTTPStatus.UNAUTHORIZED,
            )
        self._let_in(None)
        cookie = ("Set-Cookie", self.parts.access.cookie())
        if headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            # Browsers do not send a strict cookie along a redirect that began on another site.
            self._send(HTTPStatus.OK, _TO_PAGE, "text/html; charset=utf-8", cookie)
        else:
            self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", cookie, ("Location", "./"))

    def _page_file(self, path: str) -> PageFile | None:
        if _is_page(path):
            return self.parts.page[INDEX]
        folder, _, name = path.rpartition("/")
        return self.parts.page.get(name) if folder.rpartition("/")[2] == "assets" else None

    def _send_file(self, file: PageFile, headers: dict[str, str]) -> None:
        more = ("ETag", file.tag), ("Cache-Control", "private, no-cache")
        if headers.get("If-None-Match") == file.tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", file.type, *more)
        else:
            self._send(HTTPStatus.OK, file.content, file.type, *more)

    def _send_answer(self, answer: Answer) -> None:
        self._send(answer.status, answer.content, answer.type)

    def _send_error(self, status: HTTPStatus, sentence: str) -> None:
        if not self._is_known or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            self.close_connection = True  # strangers keep no connection
        self._send(status, error_content(sentence), JSON)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, *more: tuple[str, str]) -> None:
        self.connection.settimeout(SECONDS_TO_SEND)
        self._status_sent = True
        self.send_response_only(status)
        for name, value in (*_COMMON, *more):
            self.send_header(name, value)
        if not any(name == "Cache-Control" for name, _ in more):
            self.send_header("Cache-Control", "no-store")
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and content:
            self.wfile.write(content)

    def _send_events(self) -> None:
        """Send each summary until the client or the server ends."""
        self.close_connection = True
        self._send_head_of_events()
        if self.command == "HEAD":
            return
        known = 0.0
        while not self.parts.feed.closed:
            found = self.parts.feed.next(known, SECONDS_BETWEEN_SIGNS)
            if found is None:
                self.wfile.write(b":\n\n")
            else:
                known = found[0].at
                data = with_control(found[1], control=self.parts.access.control)
                self.wfile.write(b"event: summary\ndata: " + data + b"\n\n")

    def _send_head_of_events(self) -> None:
        self.connection.settimeout(SECONDS_TO_SEND)
        self._status_sent = True
        self.send_response_only(HTTPStatus.OK)
        # Proxies such as nginx would delay events until a buffer is full.
        more = ("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")
        for name, value in (*_COMMON, *more, ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()

    # -- of the standard library ------------------------------------------------------------------------------------

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called for requests that cannot be parsed, and for other methods."""
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # answers of HTTP 0.9 have no headers
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(status, error_content(f"The request is not understood: {status.phrase.lower()}."), JSON)

    def log_message(self, format: str, *args: Any) -> None:
        """No request is logged: the address of the first one has the token."""


def _headers(given: Message) -> dict[str, str]:
    """Headers by name. A header that is given twice is not used: two readers could take different ones."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name, value in given.items():
        canonical = "-".join(part.capitalize() for part in name.split("-"))
        canonical = {"X-Qcg-Pm": "X-QCG-PM"}.get(canonical, canonical)
        if canonical in found:
            twice.add(canonical)
        found[canonical] = value
    for name in twice:
        raise WrongRequest(f"The header {name} is there twice.")
    return found


def _target(target: str) -> tuple[str, dict[str, list[str]]]:
    """Path and parameters of a request."""
    try:
        parts = urlsplit(target)
        parameters = parse_qs(parts.query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="replace")
    except ValueError:
        raise WrongRequest("The address is not understood.") from None
    return parts.path, parameters


def _is_page(path: str) -> bool:
    return path.endswith("/")


def _address(path: str) -> str:
    """The last parts of a path, whatever a proxy puts before them: `api/jobs` of `/node/n1/8080/api/jobs`."""
    folder, _, name = path.rpartition("/")
    return f"api/{name}" if folder.rpartition("/")[2] == "api" else name


def _refusal(refused: Refused) -> WrongRequest:
    return WrongRequest(refused.sentence, refused.status)
