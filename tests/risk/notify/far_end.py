"""Far ends of the tests' own, on free ports of this machine: a web server that plays webhook and robots, and mail."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Got:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """first: called before anything is answered. hang: answers nothing until the server ends."""

    status: int = 200
    body: bytes = b'{"errcode": 0, "code": 0}'
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    drip: bool = False
    cut: bool = False
    first: Callable[[], Any] | None = None


class FarEnd:
    """`got` is what has arrived, in order. `replies` are taken one by one; then `reply` is the answer to all."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.got: list[Got] = []
        self.replies: list[Reply] = []
        self.reply = Reply()
        self.over = threading.Event()
        self.arrived = threading.Semaphore(0)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                outer.got.append(Got(parts.path, parse_qs(parts.query), dict(self.headers.items()), body))
                how = outer.replies.pop(0) if outer.replies else outer.reply
                outer.arrived.release()
                if how.first:
                    how.first()
                if how.hang:
                    outer.over.wait(30)
                    return
                if how.cut:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if how.drip:
                    with_ = b"HTTP/1.1 200 OK\r\nX-Slow: "
                    self.wfile.write(with_)
                    while not outer.over.wait(0.1):
                        try:
                            self.wfile.write(b"x")
                            self.wfile.flush()
                        except OSError:
                            return
                    return
                self.send_response(how.status)
                for name, value in how.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(how.body)))
                self.end_headers()
                self.wfile.write(how.body)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def far_end(context: ssl.SSLContext | None = None) -> Iterator[FarEnd]:
    server = FarEnd(context)
    try:
        yield server
    finally:
        server.close()


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for that name, and the file of who vouches for it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    moment = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = directory / f"{name}.pem", directory / f"{name}.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(*plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, secret)
    return context, chain


class MailServer:
    """aiosmtpd. refuse: recipients that it does not take. answer: to the message. hang: it says nothing after it."""

    def __init__(self) -> None:
        self.got: list[Envelope] = []
        self.refuse: set[str] = set()
        self.answer = "250 taken"
        self.logins: list[tuple[str, str]] = []
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port(), auth_require_tls=False,
                                      authenticator=self._login)  # fmt: skip
        self._controller.start()
        self.port = self._controller.port

    def _login(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"mail-password-right", handled=False)

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:
        if address in self.refuse:
            return "550 nobody"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        self.got.append(envelope)
        return self.answer

    def close(self) -> None:
        self._controller.stop()


@contextmanager
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
