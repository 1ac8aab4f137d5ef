"""From which pages a socket may be opened."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

_DEFAULT_PORT = {"http": "80", "https": "443"}


class SameOrigin:
    """Refuses a socket, with 403 before the consumer runs, that a page of another site opens with an officer's cookie.

    Allowed: an Origin that is the Host asked for (port included, which cookies do not tell apart), where that host is
    one of ALLOWED_HOSTS (a name that an attacker points at this server is not); the CSRF_TRUSTED_ORIGINS; and no
    Origin at all, since every browser sends one with a websocket: such a client is a program, which has no cookie
    but its own.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        headers = dict(scope.get("headers", []))
        allowed = is_allowed(
            origin=headers.get(b"origin", b"").decode("latin1") if b"origin" in headers else None,
            host=headers.get(b"host", b"").decode("latin1"),
        )
        application = self._application if allowed else WebsocketDenier()
        return await application(scope, receive, send)


def is_allowed(*, origin: str | None, host: str) -> bool:
    domain, _port = split_domain_port(host)
    hosts = settings.ALLOWED_HOSTS or (["localhost", "127.0.0.1", "[::1]"] if settings.DEBUG else [])
    if not domain or not validate_host(domain, hosts):
        return False
    if origin is None:
        return True
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    if parts.scheme not in _DEFAULT_PORT or not parts.netloc or "@" in parts.netloc:
        return False
    default = f":{_DEFAULT_PORT[parts.scheme]}"
    if parts.netloc.removesuffix(default) == host.lower().removesuffix(default):
        return True
    return f"{parts.scheme}://{parts.netloc}" in {trusted.lower() for trusted in settings.CSRF_TRUSTED_ORIGINS}
