"""A way to a server that can be made to drip: each byte in time, the whole answer never."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Dripping:
    """Passes everything on at once until `drip` is set; then what the server says comes a byte each `pause` seconds."""

    def __init__(self, port: int, pause: float) -> None:
        self.drip, self.over = threading.Event(), threading.Event()
        self.connections = self.dripped = 0  # dripped: bytes
        self._to, self._pause = port, pause
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _address = self._listening.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._pass, args=(peer, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, peer, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(65536):
                if not (answers and self.drip.is_set()):
                    target.sendall(data)
                    continue
                for byte in data:
                    target.sendall(bytes([byte]))
                    self.dripped += 1
                    if self.over.wait(self._pause):
                        return


@contextmanager
def dripping(port: int, *, pause: float = 0.3) -> Iterator[Dripping]:
    """The server on this port of 127.0.0.1, by another port."""
    way = Dripping(port, pause)
    try:
        yield way
    finally:
        way.close()
