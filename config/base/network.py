"""Where a request comes from: the address of the client, past those proxies alone that the settings name.

What a client writes into X-Forwarded-For is believed of nobody but a configured proxy (TRUSTED_PROXIES), for limits
that count by address are worth as much as the address. `Forwarded` and `X-Real-IP` are never read.
"""

from __future__ import annotations

import ipaddress
import re

from django.conf import settings
from django.http import HttpRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Whoever has an address of version 6 has a network of them: all of one /64 are one client.
V6_CLIENT_BITS = 64
NOBODY = "0.0.0.0"  # noqa: S104 - no address to bind to: a peer without one (a unix socket)
_PORT = re.compile(r":\d{1,5}\Z")
_MAX_HOPS = 32  # entries of X-Forwarded-For that are looked at, from the right


def parse_address(text: str) -> Address | None:
    """An address as proxies write it: with a port, in brackets, with a zone, mapped from version 4; None for no such.

    `::ffff:203.0.113.9` is `203.0.113.9`: the same client, whichever socket took the connection.
    """
    text = text.strip().strip('"')
    if text.startswith("["):
        inside, bracket, port = text[1:].partition("]")
        if not bracket or (port and not _PORT.match(port)):
            return None
        text = inside
    elif text.count(":") == 1:
        text = _PORT.sub("", text)
    text = text.partition("%")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_trusted(address: Address | None) -> bool:
    """Whether it is a configured proxy's. A peer without an address (a unix socket) is one where `unix` is named."""
    if address is None:
        return settings.TRUST_UNIX_SOCKET
    return any(address.version == network.version and address in network for network in settings.TRUSTED_PROXIES)


def client_ip(request: HttpRequest) -> str:
    """The client's address, in its usual spelling; `0.0.0.0` where the peer has none.

    1. The peer, if it is no configured proxy: nothing that it says is looked at. 2. Else X-Forwarded-For from the
    right, past configured proxies: the first other address. 3. What is no address ends the walk: then the last proxy
    stands for the client, so that garbage opens no new count. 4. Only proxies there: the left-most.
    Remembered on the request. No I/O, no errors.
    """
    known: str | None = getattr(request, "_xinghuo_client_ip", None)
    if known is None:
        known = _client_ip(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", ""))
        request._xinghuo_client_ip = known  # type: ignore[attr-defined]
    return known


def _client_ip(peer: str, forwarded: str) -> str:
    address = parse_address(peer)
    if is_trusted(address):
        for hop in reversed(forwarded.rsplit(",", _MAX_HOPS)[-_MAX_HOPS:] if forwarded.strip() else []):
            found = parse_address(hop)
            if found is None:
                break
            address = found
            if not is_trusted(found):
                break
    return NOBODY if address is None else str(address)


def ip_hex(address: str) -> str:
    """The address in lower-case hex, as it stands in keys and rows: 8 digits of version 4, the first 16 of version 6
    (its /64). Errors: ValueError for what is no address."""
    found = parse_address(address)
    if found is None:
        raise ValueError(f"{address[:40]!r} is no address")
    return found.packed.hex() if found.version == 4 else found.packed.hex()[: V6_CLIENT_BITS // 4]
