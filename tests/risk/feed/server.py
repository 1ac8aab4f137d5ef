"""A real ASGI server in this process, and an officer's browser as far as the feed is concerned."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from config.supervisor.redis_server import free_port
from risk.feed.wire import FeedProtocol


@contextmanager
def serving(ws: Any = FeedProtocol) -> Iterator[int]:
    """`config.asgi:application` under uvicorn in a thread; yields the port. ws: the protocol, as `--ws` of uvicorn."""
    from config.asgi import application

    port = free_port()
    config = uvicorn.Config(application, host="127.0.0.1", port=port, log_level="warning", lifespan="off", ws=ws)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline, "uvicorn did not start"
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)
        connections.close_all()


def log_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def _small_socket(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.connect(("127.0.0.1", port))
    return found


class Watching:
    """A socket of a logged-in person."""

    def __init__(self, port: int, client: Client | None, *, origin: str | None = "same", small: bool = False) -> None:
        """small: so little is buffered for it that it holds the server up as soon as it does not read."""
        cookie = client.cookies["sessionid"].value if client and "sessionid" in client.cookies else ""
        headers = {"Cookie": f"sessionid={cookie}"} if cookie else {}
        if origin == "same":
            origin = f"http://127.0.0.1:{port}"
        self.socket: ClientConnection = connect(
            f"ws://127.0.0.1:{port}/ws/alerts/",
            additional_headers=headers,
            origin=origin,  # type: ignore[arg-type]
            sock=_small_socket(port) if small else None,
            max_queue=4 if small else 16,
        )

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def say(self, frame: Any) -> None:
        self.socket.send(frame if isinstance(frame, (str, bytes)) else json.dumps(frame))

    def next(self, seconds: float = 5.0) -> dict[str, Any]:
        return json.loads(self.socket.recv(timeout=seconds))

    def news(self, count: int, seconds: float = 5.0) -> list[dict[str, Any]]:
        """The next `count` frames that are not heartbeats."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            frame = self.next(max(0.01, deadline - time.monotonic()))
            if frame["type"] != "heartbeat":
                found.append(frame)
        return found

    def seqs(self, count: int, seconds: float = 5.0) -> list[int]:
        return [frame["seq"] for frame in self.news(count, seconds)]

    def silent(self, seconds: float = 0.5) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            try:
                frame = self.next(max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                return True
            if frame["type"] != "heartbeat":
                return False

    def close_code(self, seconds: float = 5.0) -> int:
        deadline = time.monotonic() + seconds
        try:
            while True:
                self.next(max(0.01, deadline - time.monotonic()))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006
