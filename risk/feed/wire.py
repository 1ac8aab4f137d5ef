"""The way of a frame to its client: encoded once, written straight to the connection.

Each frame is the same for all who get it, so its text and its bytes are made once. `FeedProtocol` is uvicorn's own
protocol (`--ws risk.feed.wire:FeedProtocol`) with its connection within reach of the consumer: it writes bytes that
are ready, says whether the client takes them, and can let go of one that does not. The protocol itself is that of
`websockets`. Under any other ASGI server `AsgiLine` does the same by `websocket.send`.

A client that takes nothing costs BUFFER_BYTES and one chunk: while a line is congested nothing more is written to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode

EXTENSION = "xinghuo.line"  # in the ASGI scope's `extensions`
MAX_MESSAGE = 65_536  # bytes of a client's message, beyond which the connection is closed with 1009
BUFFER_BYTES = 65_536  # waiting for one client, beyond which its line is congested
CHUNK_BYTES = 65_536  # written at once
# Pings, unasked pongs and pieces of a message, which no consumer sees: so many at once and so many a second.
FRAMES_AT_ONCE, FRAMES_A_SECOND = 60.0, 10.0
TOO_MANY_FRAMES = 4429
ABORT_SECONDS = 5.0  # after a close frame, for a client that does not take even that


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame as text and, unmasked and uncompressed, as it goes over the wire."""

    text: str
    wire: bytes


def prepare(text: str) -> Prepared:
    return Prepared(text, bytes(Frame(Opcode.TEXT, text.encode()).serialize(mask=False)))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Frames that are written at once. last: the seq of the last one, 0 where they have none."""

    last: int
    texts: tuple[str, ...]
    wire: bytes


def chunks(frames: Iterable[tuple[int, Prepared]]) -> Iterator[Chunk]:
    """Frames with their seq, joined to pieces of about CHUNK_BYTES."""
    held: list[Prepared] = []
    size = last = 0
    for seq, frame in frames:
        if held and size + len(frame.wire) > CHUNK_BYTES:
            yield _joined(last, held)
            held, size = [], 0
        held.append(frame)
        size, last = size + len(frame.wire), seq
    if held:
        yield _joined(last, held)


def _joined(last: int, held: list[Prepared]) -> Chunk:
    return Chunk(last, tuple(one.text for one in held), b"".join(one.wire for one in held))


class Line(Protocol):
    """To one client. put never waits; it drops what comes after the end."""

    @property
    def congested(self) -> bool: ...

    def put(self, chunk: Chunk) -> None: ...

    async def drained(self) -> None: ...

    def let_go(self) -> None:
        """Before a close frame is sent: it waits behind nothing, and the connection ends ABORT_SECONDS later even
        where the client does not take it."""


class FeedProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol of one connection, as a Line."""

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        # Compressing would be done anew for each socket, and keep a window of memory for each.
        config.ws_per_message_deflate = False
        config.ws_max_size = min(config.ws_max_size, MAX_MESSAGE)
        super().__init__(config, *arguments, **named)
        self._allowance, self._counted, self._cut = FRAMES_AT_ONCE, 0.0, False

    # --- frames that the consumer never sees: counted, and answered only while the client takes answers ------------

    def handle_ping(self) -> None:
        answer = b"".join(self.conn.data_to_send())
        if self._takes() and not self.congested:
            self.transport.write(answer)

    def handle_pong(self, event: Frame) -> None:
        if self.pending_ping_payload is not None and bytes(event.data) == self.pending_ping_payload:
            super().handle_pong(event)
        else:
            self._takes()

    def handle_cont(self, event: Frame) -> None:
        if self._takes():
            super().handle_cont(event)

    def _takes(self) -> bool:
        """Whether one more such frame is within the rate; ends the connection with 4429 otherwise."""
        if self._cut:
            return False
        at = self.loop.time()
        gained = (at - self._counted) * FRAMES_A_SECOND if self._counted else 0.0
        self._allowance = min(FRAMES_AT_ONCE, self._allowance + gained) - 1
        self._counted = at
        if self._allowance >= 0:
            return True
        self._cut = self.close_sent = True
        self.conn.send_close(TOO_MANY_FRAMES, "too many frames")
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.pause_reading()
        self.transport.close()  # after what is written, if the client takes it
        self.loop.call_later(ABORT_SECONDS, self.transport.abort)
        return False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # its task has not begun yet
            self.scope["extensions"][EXTENSION] = self  # type: ignore[assignment]

    @property
    def congested(self) -> bool:
        return not self.writable.is_set()

    def put(self, chunk: Chunk) -> None:
        if not self.close_sent and not self.disconnected:
            self.transport.write(chunk.wire)

    async def drained(self) -> None:
        await self.writable.wait()
        if self.disconnected:
            raise ConnectionResetError

    def let_go(self) -> None:
        self.writable.set()
        if not self.disconnected:
            self.loop.call_later(ABORT_SECONDS, self.transport.abort)


class AsgiLine:
    """The same by an ASGI server's `send`: a queue of texts, and a task while there are any."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._texts: deque[str] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._over = False

    @property
    def congested(self) -> bool:
        return not self._free.is_set()

    def put(self, chunk: Chunk) -> None:
        if self._over:
            return
        self._texts.extend(chunk.texts)
        self._bytes += sum(map(len, chunk.texts))
        if self._bytes > BUFFER_BYTES:
            self._free.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._write(), name="feed-line")

    async def _write(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the client has gone
            while self._texts:
                text = self._texts.popleft()
                await self._send({"type": "websocket.send", "text": text})
                self._bytes -= len(text)
                if self._bytes <= BUFFER_BYTES // 2:
                    self._free.set()
        self._task = None

    async def drained(self) -> None:
        await self._free.wait()
        if self._over:
            raise ConnectionResetError

    def let_go(self) -> None:
        self._over = True
        self._texts.clear()
        self._free.set()
        if self._task is not None:
            self._task.cancel()
            self._task = None
