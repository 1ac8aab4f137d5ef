"""Whose address counts: the right-most that no configured proxy has, however it is written and whoever lies."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.test import RequestFactory

from config.base import env
from config.base.network import client_ip, ip_hex


def networks(*texts: str) -> list[Any]:
    return [ipaddress.ip_network(text) for text in texts]


@pytest.fixture
def proxies(settings: Any) -> None:
    settings.TRUSTED_PROXIES = networks("10.0.0.0/8", "127.0.0.1/32", "2001:db8:ffff::/48", "::1/128")


def seen(peer: str, forwarded: str | None = None) -> str:
    headers = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    return client_ip(RequestFactory().get("/", REMOTE_ADDR=peer, **headers))


def test_without_configured_proxies_no_header_is_believed(settings: Any) -> None:
    settings.TRUSTED_PROXIES = []
    assert seen("127.0.0.1", "198.51.100.7") == "127.0.0.1"
    assert seen("10.0.0.2", "198.51.100.7, 10.0.0.1") == "10.0.0.2"


@pytest.mark.usefixtures("proxies")
@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", "198.51.100.7", "203.0.113.9"),  # a client that plays proxy
        ("10.0.0.2", None, "10.0.0.2"),
        ("10.0.0.2", "", "10.0.0.2"),
        ("10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "1.1.1.1, 203.0.113.9", "203.0.113.9"),  # what the client itself had written stands on the left
        ("10.0.0.2", "1.1.1.1,203.0.113.9, 10.1.1.1 , 10.2.2.2", "203.0.113.9"),
        ("10.0.0.2", "127.0.0.1, 203.0.113.9, 10.1.1.1", "203.0.113.9"),
        ("10.0.0.2", "10.3.3.3, 10.1.1.1", "10.3.3.3"),  # our own health check
        ("10.0.0.2", "1.1.1.1, unknown", "10.0.0.2"),  # no address: the proxy stands for the client
        ("10.0.0.2", "1.1.1.1, 10.1.1.1'--, 10.5.5.5", "10.5.5.5"),
        ("10.0.0.2", "1.1.1.1,", "10.0.0.2"),
        ("10.0.0.2", "203.0.113.9:50123", "203.0.113.9"),
        ("10.0.0.2", '"[2001:db8::7]:443"', "2001:db8::7"),
        ("10.0.0.2", "[2001:db8::7]", "2001:db8::7"),
        ("10.0.0.2", "2001:DB8:0:0::7", "2001:db8::7"),
        ("10.0.0.2", "fe80::1%eth0", "fe80::1"),
        ("::1", "2001:db8::7, 2001:db8:ffff::2", "2001:db8::7"),
        ("::ffff:10.0.0.2", "::ffff:203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "[2001:db8::7]x", "10.0.0.2"),
        ("10.0.0.2", "0x7f.1", "10.0.0.2"),
        ("10.0.0.2", "010.1.1.1", "10.0.0.2"),
        ("", "203.0.113.9", "0.0.0.0"),
    ],
)
def test_the_rightmost_untrusted_address_counts(peer: str, forwarded: str | None, client: str) -> None:
    assert seen(peer, forwarded) == client


@pytest.mark.usefixtures("proxies")
def test_other_headers_are_never_read() -> None:
    request = RequestFactory().get(
        "/", REMOTE_ADDR="10.0.0.2", HTTP_X_REAL_IP="1.1.1.1", HTTP_FORWARDED="for=1.1.1.1", HTTP_CLIENT_IP="1.1.1.1"
    )
    assert client_ip(request) == "10.0.0.2"


def asgi(*headers: tuple[bytes, bytes]) -> ASGIRequest:
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": list(headers),
        "client": ("10.0.0.2", 5000),
    }  # fmt: skip
    return ASGIRequest(scope, None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("proxies")
def test_several_headers_are_one_list_and_an_underscore_is_no_dash() -> None:
    assert client_ip(asgi((b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"203.0.113.9"))) == "203.0.113.9"
    assert client_ip(asgi((b"x-forwarded-for", b"203.0.113.9"), (b"x_forwarded_for", b"1.1.1.1"))) == "203.0.113.9"


def test_a_socket_without_addresses_is_a_proxy_where_it_is_named(settings: Any) -> None:
    settings.TRUSTED_PROXIES, settings.TRUST_UNIX_SOCKET = [], True
    assert seen("", "203.0.113.9") == "203.0.113.9"
    assert seen("", "1.1.1.1, 203.0.113.9") == "203.0.113.9"


@pytest.mark.usefixtures("proxies")
def test_a_header_of_a_megabyte_costs_nothing() -> None:
    assert seen("10.0.0.2", "1.1.1.1," * 100_000 + "10.1.1.1") == "1.1.1.1"
    assert seen("10.0.0.2", "10.1.1.1," * 100_000 + "10.1.1.1") == "10.1.1.1"


def test_addresses_in_keys_are_lower_case_hex_and_a_v6_client_is_its_network() -> None:
    assert ip_hex("203.0.113.9") == "cb007109"
    assert ip_hex("2001:DB8::7") == ip_hex("2001:db8:0:0:ffff::1") == "20010db800000000"
    assert ip_hex("::ffff:203.0.113.9") == "cb007109"
    with pytest.raises(ValueError, match="no address"):
        ip_hex("localhost")


def test_the_setting_takes_networks_and_says_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SETTING", "10.0.0.0/8, 192.0.2.1,unix, 2001:db8::/32")
    assert env.envnetworks("A_SETTING") == (networks("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"), True)
    for wrong in ("10.0.0.1/8", "proxy.example", "*"):
        monkeypatch.setenv("A_SETTING", wrong)
        with pytest.raises(ImproperlyConfigured, match="A_SETTING"):
            env.envnetworks("A_SETTING")
