"""Access rules of the dashboard, applied to the headers of a request.

Every user of the machine can connect to a loopback port, and every web page can make a browser send requests to it. So
a request needs the token of this dashboard, or the cookie for which the token was exchanged, and must come from a page
of the dashboard itself. The `Host` header is checked because of rebound DNS names, `Origin` and `Sec-Fetch-Site`
because of pages of other origins, including pages on another port of this machine.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
CONTROL_HEADER = "X-QCG-PM"
"""A header that a form of another page cannot send; needed for requests that change something."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?")


class Refused(NamedTuple):
    """Why a request is not answered."""

    status: HTTPStatus
    sentence: str


def host_name_of(host: str) -> str | None:
    """The name in a `Host` header, without the port and in lower case; None for an invalid header."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1].lower()


class Access:
    """The secrets of one dashboard, and the rules by which requests are let in."""

    def __init__(self, allowed_hosts: Iterable[str] = (), *, control: bool = False) -> None:
        """`allowed_hosts`: host names of proxies. `control`: jobs may be changed."""
        self.token = secrets.token_urlsafe(32)
        """The token in the printed address."""
        self.control = control
        self._session = secrets.token_urlsafe(32)
        # Cookies of all ports of a host are sent together: dashboards need different names.
        self.cookie_name = f"qcg-pm-{sha256(self._session.encode()).hexdigest()[:12]}"
        self._proxies = frozenset(host.lower() for host in allowed_hosts)
        self._hosts = frozenset(LOOPBACK) | self._proxies

    def cookie(self) -> str:
        """The value of `Set-Cookie`. Without a path: browsers take the directory of the page as they see it, also
        behind a proxy that serves the dashboard under another path."""
        return f"{self.cookie_name}={self._session}; HttpOnly; SameSite=Strict"

    def is_token(self, given: str) -> bool:
        return _same(given, self.token)

    def check_host(self, headers: Mapping[str, str]) -> Refused | None:
        """Refuse requests with an unknown host name."""
        name = host_name_of(headers.get("Host", ""))
        if name in self._hosts:
            return None
        return Refused(
            HTTPStatus.FORBIDDEN,
            "This name of the host is not known to the dashboard; start it with --allow-host NAME if a proxy uses it.",
        )

    def check_read(self, headers: Mapping[str, str]) -> Refused | None:
        """Refuse requests for data without the token or the cookie, and requests from pages of other origins."""
        if not self.is_known(headers):
            return Refused(
                HTTPStatus.UNAUTHORIZED,
                "This dashboard needs its token: open the address that `qcg-pm dashboard` printed.",
            )
        if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") or not self._own_origin(headers):
            return Refused(HTTPStatus.FORBIDDEN, "Pages of other origins cannot read the dashboard.")
        return None

    def check_page(self, headers: Mapping[str, str]) -> Refused | None:
        """Check requests for the page and its parts as in `check_read`, but allow links from other pages."""
        if not self.is_known(headers):
            return self.check_read(headers)
        return None

    def check_change(self, headers: Mapping[str, str]) -> Refused | None:
        """Refuse requests that change jobs unless the page of this dashboard sends them, and --control is given."""
        refused = self.check_read(headers)
        if refused is not None:
            return refused
        if not self.control:
            return Refused(
                HTTPStatus.FORBIDDEN, "This dashboard only shows the run; start it with --control to change jobs."
            )
        if not self._has_cookie(headers) or "Origin" not in headers or headers.get(CONTROL_HEADER) != "1":
            return Refused(HTTPStatus.FORBIDDEN, "Only the page of the dashboard can change jobs.")
        return None

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the cookie, or the token as programs send it."""
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        return self._has_cookie(headers) or (scheme.lower() == "bearer" and self.is_token(given.strip()))

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        # Not parsed strictly: browsers also send the cookies of applications on other ports, whatever these contain.
        for cookie in headers.get("Cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self.cookie_name and _same(value, self._session):
                return True
        return False

    def _own_origin(self, headers: Mapping[str, str]) -> bool:
        """Whether the origin is the dashboard itself: the same host and port, or a known proxy."""
        origin = headers.get("Origin")
        if origin is None:
            return True
        try:
            parts = urlsplit(origin)
            name = host_name_of(parts.netloc)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or name is None:
            return False
        return name in self._proxies or parts.netloc.lower() == headers.get("Host", "").lower()


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())
