"""`ws /ws/alerts/`: the live feed of a logged-in officer.

Frames: see `docs` of the feed in risk/README.md. Everyone who may see alerts (risk_officer, risk_manager) gets every
frame of their tenant, for a manager sees all; `notify_role` in the payload says whom the screen should call.

Nothing is lost between the database and the screen: `alert_outbox.seq` has no holes, so a socket that sees a gap,
falls behind, or hears that the relay lost Redis reads the missing rows. Nothing comes twice: the socket's cursor
only moves forward, except where the client itself asks for `resume`.

On Redis being away: open. The socket stays, heartbeats go on (with what the outbox holds), and what was published
later arrives when Redis is back. On the database being away: the socket stays and says so in an `error` frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from config.base.fields import canonical_json
from risk.feed import selectors
from risk.feed.relay import relay
from risk.feed.watch import Watcher, session_digest, watcher_of

logger = logging.getLogger(__name__)

NOT_LOGGED_IN = 4401
NO_ROLE = 4403
MOVED = 1012  # the person's tenant changed: connect again
TOO_SLOW = 1013

MAX_FRAME = 4096  # characters that a client may send at once
MAX_BACKLOG = 500  # live frames kept for a slow socket; beyond them it reads the outbox instead
SEND_SECONDS = 30.0  # a frame that the client's connection does not take in this time ends the socket
# After `hello` live frames wait this long for a `resume`, so that what was missed comes before what is new.
SETTLE_SECONDS = 0.25
RETRY_SECONDS = 1.0  # between tries while the database is away

T = TypeVar("T")


class AlertFeedConsumer(AsyncWebsocketConsumer):
    """One socket. All frames but errors go out from one task, which owns the cursor."""

    tenant = ""
    session = ""
    _sender: asyncio.Task[None] | None = None

    # No channel layer: its blocking reads would end every socket when Redis goes. The relay does that work.
    channel_layer_alias = "none"

    async def connect(self) -> None:
        with contextlib.suppress(OSError):  # a client that has gone again: disconnect() follows
            await self._enter()

    async def _enter(self) -> None:
        await self.accept()
        try:
            self._session_key = getattr(self.scope.get("session"), "session_key", None)
            watcher = await _in_database(watcher_of, self._session_key)
        except (DatabaseError, InterfaceError):
            await self.close(1011)
            return
        refusal = _refusal(watcher)
        if refusal or watcher is None:
            await self.close(refusal)
            return
        self.tenant = watcher.tenant
        self.session = session_digest(self._session_key or "")
        self._live: deque[tuple[int, dict[str, Any]]] = deque()
        self._behind = False
        self._signed_out = False
        self._resume: Any = None
        self._resume_asked = False
        self._wake = asyncio.Event()
        self._sender = asyncio.create_task(self._run(), name="feed-socket")

    async def disconnect(self, code: int) -> None:
        relay().leave(self)
        if self._sender is not None:
            self._sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sender

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A frame of the client's: `{"type": "resume", "after": N}`. Anything else is answered and forgotten."""
        if self._sender is None:
            return
        fault, message = _parse(text_data)
        if fault:
            with contextlib.suppress(TimeoutError, OSError):
                await self._error(*fault)
            return
        # A resume that comes before the last one was answered takes its place: a flood costs one read.
        self._resume, self._resume_asked = message.get("after"), True
        self._wake.set()

    # --- what the relay calls: never waits ------------------------------------------------------------------------

    def on_event(self, seq: int, event: dict[str, Any]) -> None:
        if len(self._live) >= MAX_BACKLOG:
            self._live.clear()
            self._behind = True
        elif not self._behind:
            self._live.append((seq, event))
        self._wake.set()

    def on_gap(self) -> None:
        self._behind = True
        self._wake.set()

    def on_signed_out(self) -> None:
        self._signed_out = True
        self._wake.set()

    # --- the sending task -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._feed()
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            await self._give_up(TOO_SLOW)
        except OSError:
            pass  # the client has gone; disconnect() follows
        except Exception:
            logger.exception("a feed socket failed")
            await self._give_up(1011)
        finally:
            relay().leave(self)

    async def _feed(self) -> None:
        # The relay first, then the head: an event in between is in both, and the cursor drops it once.
        relay().join(self)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(relay().subscribed.wait(), 0.5)
        self._cursor = await self._patiently(selectors.head, tenant=self.tenant)
        await self._frame({"type": "hello", "head": self._cursor})
        settled = time.monotonic() + SETTLE_SECONDS
        beat = time.monotonic() + settings.FEED_HEARTBEAT_SECONDS
        while True:
            if self._signed_out:
                await self.close(NOT_LOGGED_IN)
                return
            if self._resume_asked:
                settled = 0.0
                await self._answer_resume()
                continue
            at = time.monotonic()
            # Before the live frames, so that no stream of them can put off the look at the login.
            if at >= beat:
                beat = at + settings.FEED_HEARTBEAT_SECONDS
                if await self._heartbeat():
                    return
                continue
            if at >= settled and (self._behind or self._live):
                await self._catch_up()
                continue
            self._wake.clear()
            until = min(beat, settled) if at < settled else beat
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, until - at))

    async def _catch_up(self) -> None:
        """Sends what is live; reads the outbox where something is missing before it."""
        while self._live and not self._behind and not self._interrupted:
            seq, event = self._live[0]
            if seq > self._cursor + 1:
                self._behind = True
                break
            self._live.popleft()
            if seq == self._cursor + 1:
                self._cursor = seq
                await self._frame({**event, "seq": seq})
        if self._behind and not self._interrupted:
            self._behind = False
            await self._read_outbox()

    @property
    def _interrupted(self) -> bool:
        """Whether what is being sent is out of date: the client asked for another place, or has logged out."""
        return self._resume_asked or self._signed_out

    async def _read_outbox(self) -> None:
        """Sends every stamped row after the cursor. Live frames that come meanwhile wait and are then dropped."""
        while True:
            waiting = self._live[0][0] if self._live else 0
            rows = await self._patiently(selectors.frames_after, tenant=self.tenant, after=self._cursor)
            for row in rows:
                if self._interrupted:
                    return
                self._cursor = row["seq"]
                await self._frame(row)
            if len(rows) < selectors.PAGE:
                break
        if waiting > self._cursor + 1:
            # It was sent, so all rows up to it were committed before this read: they have been pruned since.
            self._cursor = waiting - 1

    async def _answer_resume(self) -> None:
        after, self._resume_asked = self._resume, False
        sound = isinstance(after, int) and not isinstance(after, bool) and 0 <= after < 2**63
        if sound and await self._patiently(selectors.can_resume, tenant=self.tenant, after=after):
            self._cursor = after
            await self._read_outbox()
            return
        self._cursor = max(self._cursor, await self._patiently(selectors.head, tenant=self.tenant))
        await self._frame({"type": "reset"})

    async def _heartbeat(self) -> bool:
        """Looks the login up again, fills what was missed, sends the head. True: the socket is closed."""
        try:
            watcher = await _in_database(watcher_of, self._session_key)
            head = await _in_database(selectors.head, tenant=self.tenant)
        except (DatabaseError, InterfaceError):
            await self._error("DATABASE_UNAVAILABLE", "the database is away; alerts that come now are shown later")
            return False
        refusal = _refusal(watcher)
        if refusal or watcher is None:
            await self.close(refusal)
            return True
        if watcher.tenant != self.tenant:
            await self.close(MOVED)
            return True
        if head > self._cursor:
            await self._read_outbox()
        elif head < self._cursor:
            # Numbers never fall, unless the database was put back to an earlier state: nothing shown can be trusted.
            self._cursor = head
            await self._frame({"type": "reset"})
        await self._frame({"type": "heartbeat", "head": max(head, self._cursor)})
        return False

    async def _patiently(self, read: Callable[..., T], **arguments: Any) -> T:
        """A read that waits for a database that is away and says so, in the place of heartbeats."""
        tell_at = 0.0
        while True:
            try:
                return await _in_database(read, **arguments)
            except (DatabaseError, InterfaceError):
                if time.monotonic() >= tell_at:
                    await self._error("DATABASE_UNAVAILABLE", "the database is away; the feed goes on when it is back")
                    tell_at = time.monotonic() + settings.FEED_HEARTBEAT_SECONDS
                await asyncio.sleep(RETRY_SECONDS)

    async def _frame(self, body: dict[str, Any]) -> None:
        await asyncio.wait_for(self.send(text_data=canonical_json(body)), SEND_SECONDS)

    async def _error(self, code: str, detail: str) -> None:
        await self._frame({"type": "error", "code": code, "detail": detail})

    async def _give_up(self, code: int) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.close(code), 1.0)


def _parse(text: str | None) -> tuple[tuple[str, str] | None, dict[str, Any]]:
    """What is wrong with a client's frame, as code and sentence, or the frame."""
    if text is None or len(text) > MAX_FRAME:
        return ("INVALID_REQUEST", f"send text of at most {MAX_FRAME} characters"), {}
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return ("INVALID_JSON", "the frame is not JSON"), {}
    if not isinstance(message, dict) or message.get("type") != "resume":
        return ("INVALID_REQUEST", 'the only frame a client sends is {"type": "resume", "after": N}'), {}
    return None, message


def _refusal(watcher: Watcher | None) -> int:
    """The close code, 0 for none."""
    if watcher is None:
        return NOT_LOGGED_IN
    return 0 if watcher.may_watch else NO_ROLE


async def _in_database(read: Callable[..., T], *arguments: Any, **named: Any) -> T:
    found: T = await database_sync_to_async(read)(*arguments, **named)
    return found
