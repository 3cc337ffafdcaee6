"""Access control of requests, by their headers alone."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from qcg.pilotjob.dashboard.access import Access, host_name_of

HOST = "127.0.0.1:8080"


@pytest.fixture
def access() -> Access:
    return Access(["hub.example.org"], control=True)


def known(access: Access, **more: str) -> dict[str, str]:
    cookie = access.cookie().partition(";")[0]
    return {"Host": HOST, "Cookie": cookie, **{name.replace("_", "-"): value for name, value in more.items()}}


def changing(access: Access, **more: str) -> dict[str, str]:
    return {**known(access), "Origin": f"http://{HOST}", "X-QCG-PM": "1", **more}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:9", "hub.example.org"])
def test_known_names_of_the_host_are_accepted(access: Access, host: str):
    assert access.check_host({"Host": host}) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost:8080:1",
        "127.0.0.1@evil",
        "localhost ",
        "127.0.0.2",
        "[::2]",
    ],
)
def test_other_names_of_the_host_are_refused(access: Access, host: str):
    refused = access.check_host({"Host": host})
    assert refused is not None
    assert refused.status is HTTPStatus.FORBIDDEN


def test_a_request_without_a_host_is_refused(access: Access):
    assert access.check_host({}) is not None


def test_the_cookie_grants_access(access: Access):
    assert access.check_read(known(access)) is None
    assert access.check_page(known(access)) is None


def test_the_token_grants_access_to_programs(access: Access):
    assert access.check_read({"Host": HOST, "Authorization": f"Bearer {access.token}"}) is None


def test_the_cookie_is_not_the_token(access: Access):
    assert access.token not in access.cookie()
    assert "HttpOnly" in access.cookie()
    assert "SameSite=Strict" in access.cookie()


@pytest.mark.parametrize("cookie", ["", "x", "qcg-pm-0=1", "=;=;", '"', "a" * 5000, "\udcff"])
def test_other_cookies_are_refused(access: Access, cookie: str):
    for given in (cookie, f"{access.cookie_name}={cookie}"):
        refused = access.check_read({"Host": HOST, "Cookie": given})
        assert refused is not None
        assert refused.status is HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize(
    "other",
    ['foo={"a": 1}', "foo=a b", "foo", "x[1]=2", "theme=dark mode", "a@b=1", "k=\u00fc", "a/b=1", "", "=", '"'],
)
def test_cookies_of_other_applications_on_the_machine_do_no_harm(access: Access, other: str):
    own = known(access)["Cookie"]
    for given in (f"{other}; {own}", f"{own}; {other}", f"{other};{own};{other}"):
        assert access.check_read({"Host": HOST, "Cookie": given}) is None, given


def test_an_earlier_cookie_of_the_same_name_does_no_harm(access: Access):
    """Browsers keep cookies by path, and send all that match."""
    own = known(access)["Cookie"]
    assert access.check_read({"Host": HOST, "Cookie": f"{access.cookie_name}=old; {own}"}) is None


def test_a_cookie_with_another_name_is_refused(access: Access):
    secret = known(access)["Cookie"].partition("=")[2]
    for given in (secret, f"={secret}", f"x={secret}", f"x={access.cookie_name}={secret}"):
        assert access.check_read({"Host": HOST, "Cookie": given}) is not None, given


def test_secrets_of_another_dashboard_are_refused(access: Access):
    other = Access()
    assert access.check_read(known(other)) is not None
    renamed = known(other)["Cookie"].replace(other.cookie_name, access.cookie_name)
    assert access.check_read({"Host": HOST, "Cookie": renamed}) is not None
    assert access.check_read({"Host": HOST, "Authorization": f"Bearer {other.token}"}) is not None
    assert not access.is_token(other.token)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:8081", "http://localhost:8080", "file://", "http://[", ""],
)
def test_pages_of_other_origins_are_refused(access: Access, origin: str):
    assert access.check_read(known(access, Origin=origin)) is not None
    assert access.check_change(changing(access, Origin=origin)) is not None


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_browsers_say_which_page_sends_a_request(access: Access, site: str):
    assert access.check_read(known(access, Sec_Fetch_Site=site)) is not None
    assert access.check_read(known(access, Sec_Fetch_Site="same-origin")) is None


def test_a_proxy_that_was_named_is_an_origin(access: Access):
    assert access.check_read(known(access, Origin="https://hub.example.org")) is None
    assert access.check_change(changing(access, Origin="https://hub.example.org")) is None
    assert Access().check_read(known(access, Origin="https://hub.example.org")) is not None


@pytest.mark.parametrize("missing", ["Cookie", "Origin", "X-QCG-PM"])
def test_changes_need_cookie_origin_and_header(access: Access, missing: str):
    headers = changing(access)
    assert access.check_change(headers) is None
    del headers[missing]
    assert access.check_change(headers) is not None


def test_the_token_alone_changes_nothing(access: Access):
    headers = changing(access, Authorization=f"Bearer {access.token}")
    del headers["Cookie"]
    assert access.check_change(headers) is not None


def test_without_control_nothing_is_changed():
    access = Access()
    refused = access.check_change(changing(access))
    assert refused is not None
    assert "--control" in refused.sentence


def test_names_of_hosts():
    assert host_name_of("Example.ORG:80") == "example.org"
    assert host_name_of("[::1]:80") == "[::1]"
    assert host_name_of("a/b") is None
