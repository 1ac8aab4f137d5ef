"""The way out of the house: every connection of a notification is made here, apprise's too.

- Addresses are looked up once, checked, and those that were checked are connected to: a name that points to one of our
  own machines, now or at a second look-up, reaches none. Private, loopback, link-local and otherwise special networks
  are refused unless NOTIFY_NETWORKS names them.
- HTTPS alone, unless NOTIFY_PLAIN_HTTP. No redirect is followed, no proxy of the environment used, no body longer than
  MOST_ANSWER read.
- A try has NOTIFY_SECONDS in all: a watch then cuts its sockets, however slowly the far end drips.
- What goes wrong is a word in `Try.fault`. No text of a library leaves this module: it quotes addresses, with tokens.

apprise's plugins find `Requests` where they look for the module `requests`, and `Mail` for `smtplib` (senders.py).
"""

from __future__ import annotations

import ipaddress
import logging
import smtplib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
MOST_ANSWER = 16_384  # bytes of an answer that are read

# Words of `NotifyDelivery.code` that are told from here.
UNREACHABLE, TIMED_OUT, ADDRESS_REFUSED, TOO_LATE, BROKEN, TLS_FAILED = (
    "UNREACHABLE", "TIMED_OUT", "ADDRESS_REFUSED", "TOO_LATE", "BROKEN_OFF", "TLS_FAILED",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a far end said. As much of requests.Response as apprise's plugins read."""

    status_code: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


@dataclass
class Try:
    """One try to send one message.

    until: of time.monotonic(); nothing is begun after it, for then the message may be somebody else's. base: in place
    of the scheme and host that is asked for. amend: changes the body, after apprise made it. begun: some of the message
    has left. mail: the reply code of the mail server to the message, or to what came before it.
    """

    until: float
    base: str = ""
    amend: Callable[[bytes], bytes] | None = None
    begun: bool = False
    fault: str = ""
    answer: Answer | None = None
    mail: int | None = None
    refused: int = 0  # recipients, where others were taken
    cut: bool = False
    sockets: list[socket.socket] = field(default_factory=list)

    def begin(self) -> None:
        """Errors: ConnectionError: it is too late."""
        if self.cut or time.monotonic() >= self.until:
            self.fault = TOO_LATE
            raise ConnectionError(TOO_LATE)
        self.begun = True

    def cut_off(self) -> None:
        self.cut = True
        for one in list(self.sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


_under_way: ContextVar[Try] = ContextVar("risk.notify.try")


@contextmanager
def trying(one: Try) -> Iterator[Try]:
    """Whatever is sent within is this try, and ends with it."""
    token = _under_way.set(one)
    watch = threading.Timer(settings.NOTIFY_SECONDS, one.cut_off)
    watch.daemon = True
    watch.start()
    try:
        yield one
    finally:
        watch.cancel()
        _under_way.reset(token)
        for sock in one.sockets:
            with suppress(OSError):
                sock.close()


# --- addresses --------------------------------------------------------------------------------------------------


class _Refused(OSError):
    pass


def may_reach(address: str) -> bool:
    """Whether messages may go to this IP address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            found = found.ipv4_mapped
        elif found in _NAT64:
            found = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if any(found.version == network.version and found in network for network in settings.NOTIFY_NETWORKS):
        return True
    if isinstance(found, ipaddress.IPv6Address) and (found not in _UNICAST or found.sixtofour or found.teredo):
        return False  # they hold addresses of version 4, or are nobody's
    return found.is_global and not found.is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")


def _resolved(host: str, port: int) -> list[Any]:
    """`getaddrinfo`, given up after CONNECT_SECONDS. Errors: OSError."""
    found: list[Any] = []
    faults: list[BaseException] = []

    def look() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            faults.append(error)

    thread = threading.Thread(target=look, name="notify-lookup", daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if faults or not found:
        raise OSError(UNREACHABLE)
    return list(found)


def connect(host: str, port: int) -> socket.socket:
    """A connection of the try under way, to one of the addresses of that name; none of them may be one that is refused.

    Errors: OSError, with the reason in the try's `fault`.
    """
    one = _under_way.get()
    if one.cut:
        one.fault = TIMED_OUT
        raise OSError(TIMED_OUT)
    try:
        addresses = _resolved(host, port)
    except OSError:
        one.fault = UNREACHABLE
        raise
    if not all(may_reach(address[4][0]) for address in addresses):
        one.fault = ADDRESS_REFUSED
        raise _Refused(ADDRESS_REFUSED)
    for family, kind, protocol, _name, where in addresses:
        if one.cut:
            one.fault = TIMED_OUT
            break
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect(where)
        except OSError as error:
            sock.close()
            one.fault = TIMED_OUT if isinstance(error, TimeoutError) else UNREACHABLE
            continue
        sock.settimeout(settings.NOTIFY_SECONDS)
        # Of our own: TLS takes the other one over, and the watch must still reach the connection.
        one.sockets.append(sock.dup())
        one.fault = ""
        return sock
    raise OSError(one.fault)


# --- HTTP -------------------------------------------------------------------------------------------------------


class _Checked:
    """A connection to an address that was checked; what is sent over it is part of the try."""

    host: str
    port: int
    sock: Any

    def _new_conn(self) -> socket.socket:
        return connect(self.host, self.port)

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        _under_way.get().begin()
        super().send(data)  # type: ignore[misc]


class _Plain(_Checked, HTTPConnection):
    pass


class _Secure(_Checked, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        self.poolmanager = PoolManager(num_pools=1, maxsize=1)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}


def fetch(method: str, url: str, *, data: Any = None, headers: Any = None, params: Any = None, **_: Any) -> Answer:
    """One request of the try under way; its answer is also the try's.

    Errors: requests.ConnectionError without words: the try's `fault` says why.
    """
    one = _under_way.get()
    one.answer, one.fault = None, ""
    if one.base:
        parts = urlsplit(url)
        url = f"{one.base}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    if urlsplit(url).scheme != "https" and not settings.NOTIFY_PLAIN_HTTP:
        one.fault = ADDRESS_REFUSED
        raise requests.ConnectionError(ADDRESS_REFUSED)
    body = data.encode() if isinstance(data, str) else data
    if one.amend:
        body = one.amend(body)
    content = b""
    try:
        with requests.Session() as session:
            session.trust_env = False
            for scheme in ("https://", "http://"):
                session.mount(scheme, _Adapter(max_retries=0))
            response = session.request(
                method, url, data=body, headers={**(headers or {}), "Accept-Encoding": "identity"}, params=params,
                timeout=(CONNECT_SECONDS, settings.NOTIFY_SECONDS), allow_redirects=False, stream=True,
                verify=settings.NOTIFY_CA_FILE or True,
            )  # fmt: skip
            with suppress(Exception):  # the status has been said; what the rest means is asked of who needs it
                content = response.raw.read(MOST_ANSWER, decode_content=False)
    except Exception as error:  # noqa: BLE001 - libraries have many kinds, and their texts quote the address
        one.fault = one.fault or _fault(one, error)
        raise requests.ConnectionError(one.fault) from None
    if one.cut:  # what was read so far may look like an answer
        one.fault = TIMED_OUT
        raise requests.ConnectionError(TIMED_OUT)
    told = {name.lower(): value for name, value in response.headers.items()}
    one.answer = Answer(response.status_code, content, told)
    return one.answer


def _fault(one: Try, error: Exception) -> str:
    if one.cut or isinstance(error, requests.Timeout | TimeoutError):
        return TIMED_OUT
    return TLS_FAILED if isinstance(error, requests.exceptions.SSLError) else BROKEN


class Requests:
    """Stands where apprise's plugins look for the module `requests`."""

    RequestException = requests.RequestException
    codes = requests.codes

    @staticmethod
    def post(url: str, **how: Any) -> Answer:
        return fetch("POST", url, **how)

    @staticmethod
    def request(method: str, url: str, **how: Any) -> Answer:
        return fetch(method.upper(), url, **how)


# --- mail -------------------------------------------------------------------------------------------------------


class _Noting:
    """Notes how far a message has come: what was refused before its text is refused, and what came after is not known
    until the server says so."""

    def login(self, *args: Any, **how: Any) -> Any:
        with _noted():
            return super().login(*args, **how)  # type: ignore[misc]

    def sendmail(self, *args: Any, **how: Any) -> Any:
        one = _under_way.get()
        with _noted():
            refused = super().sendmail(*args, **how)  # type: ignore[misc]
        one.refused = len(refused)
        return refused

    def data(self, msg: Any) -> Any:
        one = _under_way.get()
        one.begin()
        code, text = super().data(msg)  # type: ignore[misc]
        one.mail = code
        return code, text


@contextmanager
def _noted() -> Iterator[None]:
    one = _under_way.get()
    try:
        yield
    except smtplib.SMTPRecipientsRefused as error:
        one.mail = max((code for code, _text in error.recipients.values()), default=550)
        raise
    except smtplib.SMTPResponseException as error:
        one.mail = error.smtp_code
        raise


class _SMTP(_Noting, smtplib.SMTP):
    def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
        return connect(host, port)


class _SMTPS(_Noting, smtplib.SMTP_SSL):
    def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
        return self.context.wrap_socket(connect(host, port), server_hostname=host)


class Mail:
    """Stands where apprise's mail looks for the module `smtplib`."""

    SMTP = _SMTP
    SMTP_SSL = _SMTPS
    SMTPException = smtplib.SMTPException


def note_fault(error: BaseException) -> None:
    """A fault of ours in the log: its kind and place, never its text."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = f"{last.tb_frame.f_code.co_name}:{last.tb_lineno}" if last is not None else "?"
    logger.error("a notification was not sent: %s in %s", type(error).__name__, place)
