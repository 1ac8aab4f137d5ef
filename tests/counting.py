"""What a call costs: its round trips to Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.connection import AbstractConnection

from tests.threads import of_its_own

# A new connection's greeting is no part of a call's cost.
_GREETING = {"HELLO", "AUTH", "SELECT", "INFO", "CLIENT", "READONLY"}


@contextmanager
def counted_round_trips() -> Iterator[list[str]]:
    """What this process sends to Redis meanwhile: the first command's name for each round trip.

    One `send` is one, whichever client sends it (a pipeline sends once). Threads of ours that tell Redis something now
    and then do not count.
    """
    sent: list[str] = []
    original = AbstractConnection.send_packed_command

    def send(self: Any, command: Any, check_health: bool = True) -> None:
        packed = command if isinstance(command, bytes) else b"".join(command)
        name = packed.split(b"\r\n", 3)[2].decode()
        if name not in _GREETING and not of_its_own():
            sent.append(name)
        original(self, command, check_health)

    AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        AbstractConnection.send_packed_command = original  # type: ignore[method-assign]
