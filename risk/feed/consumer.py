"""`ws /ws/alerts/`: the live feed of a logged-in officer.

Frames: see "Feed" in risk/README.md. Everyone who may see alerts gets every number of their tenant: as an `alert`
frame whoever it calls (`notify_role`), as an `update` whoever may see it all the same (audience.py).

Nothing is lost between the database and the screen: `alert_outbox.seq` has no holes, and a socket is only `up`, that is
given what is new, while it has everything before it. One that comes, asks to resume, or does not take what it is given
is brought up by a task of its own, which ends there: a socket that is up costs no task, and holds no frames.

On Redis being away: open. The socket stays, heartbeats go on, and what is stamped meanwhile is read from the outbox.
On the database being away: the socket stays and says so in an `error` frame; new ones are closed with 1011.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from config.base.fields import canonical_json
from risk.feed import database, selectors
from risk.feed.audience import Roles
from risk.feed.relay import DATABASE_AWAY, relay
from risk.feed.tenant import RETRY_SECONDS, Gone, TenantFeed
from risk.feed.watch import Watcher, session_digest
from risk.feed.wire import EXTENSION, AsgiLine, Line, chunks, prepare

logger = logging.getLogger(__name__)

NOT_LOGGED_IN = 4401
NO_ROLE = 4403
TOO_MANY_SOCKETS = 4409  # of one person
TOO_MANY_MESSAGES = 4429  # from the client
MOVED = 1012  # the person's tenant changed: connect again
FAILED = 1011
COME_BACK = 1013  # `slow`: frames were not taken; `full`: the process has no room

MAX_FRAME = 4096  # characters that a client may send at once (wire.MAX_MESSAGE ends the connection)
MESSAGES_AT_ONCE, MESSAGES_A_SECOND = 20, 2.0  # of a client
SEND_SECONDS = 30.0  # a client that takes nothing for so long is let go
# After `hello` live frames wait this long for a `resume`, so that what was missed comes before what is new.
SETTLE_SECONDS = 0.25

T = TypeVar("T")


class AlertFeedConsumer(AsyncWebsocketConsumer):
    """One socket. Its own task sends frames while it is on its way, the feed of its tenant while it is up."""

    # No channel layer: its blocking reads would end every socket when Redis goes. The relay does that work.
    channel_layer_alias = "none"

    line: Line
    session_key = session = ""
    watcher: Watcher | None = None
    roles: Roles = frozenset()
    cursor = 0
    _feed: TenantFeed | None = None
    _task: asyncio.Task[None] | None = None
    _closing: asyncio.Task[None] | None = None
    _resume: Any = None
    _asked = False  # for a resume, which is not answered yet
    _allowance, _counted = float(MESSAGES_AT_ONCE), 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As the parent's, without the task and the visit to a database thread that it makes for each message."""
        self.scope, self.base_send = scope, send
        with contextlib.suppress(StopConsumer):
            while True:
                message = await receive()
                await getattr(self, get_handler_name(message))(message)

    async def connect(self) -> None:
        with contextlib.suppress(OSError):  # a client that has gone again: disconnect() follows
            await self._enter()

    async def _enter(self) -> None:
        """Accepts, and closes again with a code that says why: a browser cannot read the status of a refusal."""
        self.line = self.scope.get("extensions", {}).get(EXTENSION) or AsgiLine(self.base_send)
        await self.accept()
        house = relay()
        if house.is_full():
            await self._close(COME_BACK, "full")
            return
        house.join(self)
        self.session_key = getattr(self.scope.get("session"), "session_key", None) or ""
        self.session = session_digest(self.session_key)
        try:
            watcher = await house.logins.look(self.session_key) if self.session_key else None
        except database.AWAY:
            await self._close(FAILED)
            return
        refusal = _refusal(watcher)
        if refusal or watcher is None:
            await self._close(refusal)
        elif house.of_person(watcher.user_id) >= settings.FEED_SOCKETS_PER_PERSON:
            await self._close(TOO_MANY_SOCKETS)
        else:
            self.watcher, self.roles = watcher, watcher.roles
            self._start()

    async def disconnect(self, code: int) -> None:
        self._stop()
        if self._closing is None and hasattr(self, "line"):
            self.line.let_go()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A frame of the client's: `{"type": "resume", "after": N}`. Anything else is answered and forgotten."""
        if self.watcher is None or self._closing is not None:
            return
        if not self._is_allowed():
            self._shut(TOO_MANY_MESSAGES)
            return
        fault, message = _parse(text_data)
        if fault:
            self._say({"type": "error", "code": fault[0], "detail": fault[1]})
            return
        # A resume that comes before the last one was answered takes its place: a flood costs one read.
        self._resume, self._asked = message.get("after"), True
        if self._feed is not None:
            self._feed.step_out(self)
        self._start()
        self._wake.set()

    def _is_allowed(self) -> bool:
        at = time.monotonic()
        gained = (at - self._counted) * MESSAGES_A_SECOND if self._counted else 0.0
        self._allowance = min(float(MESSAGES_AT_ONCE), self._allowance + gained) - 1
        self._counted = at
        return self._allowance >= 0

    # --- what relay and feed call: never waits ------------------------------------------------------------------------

    def fall_behind(self) -> None:
        self._start()

    def on_signed_out(self) -> None:
        self._shut(NOT_LOGGED_IN)

    def on_login(self, watcher: Watcher | None) -> None:
        if watcher == self.watcher or self.watcher is None:
            return
        refusal = _refusal(watcher)
        if refusal or watcher is None:
            self._shut(refusal)
        elif watcher.tenant != self.watcher.tenant:
            self._shut(MOVED)
        else:
            # Called by other alerts from now on.
            if self._feed is not None:
                self._feed.step_out(self)
            self.watcher, self.roles = watcher, watcher.roles
            self._start()

    # --- the task that brings a socket up -----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None and self._closing is None:
            self._wake = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="feed-socket")

    def _stop(self) -> None:
        relay().leave(self)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._bring_up()
        except TimeoutError:
            self._shut(COME_BACK, "slow")
        except OSError:
            relay().leave(self)  # the client has gone; disconnect() follows
        except Exception:
            logger.exception("a feed socket failed")
            self._shut(FAILED)
        finally:
            self._task = None

    async def _bring_up(self) -> None:
        if self._feed is None:
            self._feed = await self._patiently(lambda: relay().feed(self))
            self.cursor = self._feed.join(self)
            self._say({"type": "hello", "head": self.cursor})
            if not self._asked:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), SETTLE_SECONDS)
        while self._asked or not self._feed.goes_up(self):
            if self._asked:
                await self._answer_resume(self._feed)
            elif self.cursor < 0 or self.cursor > self._feed.told(self.roles):
                self._reset(self._feed)
            else:
                await self._go_on(self._feed)

    async def _go_on(self, feed: TenantFeed) -> None:
        """Sends what comes next, as far as the client takes it."""
        # First of all: who waits for a client holds nothing meanwhile.
        await asyncio.wait_for(self.line.drained(), SEND_SECONDS)
        try:
            chunk = await self._patiently(lambda: feed.after(self.cursor, self.roles))
        except Gone:
            self._reset(feed)
            return
        if chunk is not None and not self._asked and self.cursor >= 0:
            self.line.put(chunk)
            self.cursor = chunk.last
        await asyncio.wait_for(self.line.drained(), SEND_SECONDS)

    async def _answer_resume(self, feed: TenantFeed) -> None:
        after, self._asked = self._resume, False
        sound = isinstance(after, int) and not isinstance(after, bool) and 0 <= after < 2**63
        if sound and after <= feed.told(self.roles) and (feed.keeps(after) or await self._is_kept(feed, after)):
            self.cursor = after
        else:
            self._reset(feed)

    async def _is_kept(self, feed: TenantFeed, after: int) -> bool:
        return await self._patiently(
            lambda: database.in_database(selectors.can_resume, tenant=feed.tenant, after=after)
        )

    def _reset(self, feed: TenantFeed) -> None:
        self.cursor = feed.told(self.roles)
        self._say({"type": "reset"})

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """A read that waits for a database that is away and says so, in the place of heartbeats."""
        tell_at = 0.0
        while True:
            try:
                return await read()
            except database.AWAY:
                if time.monotonic() >= tell_at:
                    self._say(DATABASE_AWAY)
                    tell_at = time.monotonic() + settings.FEED_HEARTBEAT_SECONDS
                await asyncio.sleep(RETRY_SECONDS)

    # --- saying and closing -------------------------------------------------------------------------------------------

    def _say(self, body: dict[str, Any]) -> None:
        """A frame for this client alone; dropped where the client takes nothing."""
        if not self.line.congested:
            self.line.put(next(chunks([(0, prepare(canonical_json(body)))])))

    def _shut(self, code: int, reason: str = "") -> None:
        """Closes, in a task: whoever calls does not wait."""
        if self._closing is None:
            self._stop()
            self._closing = asyncio.create_task(self._close(code, reason), name="feed-close")

    async def _close(self, code: int, reason: str = "") -> None:
        relay().leave(self)
        self.line.let_go()
        with contextlib.suppress(OSError, RuntimeError):  # it has gone by itself
            await self.close(code, reason or None)


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
