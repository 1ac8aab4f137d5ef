"""One Redis subscription for all sockets of a process, one look at all their logins, one heartbeat.

It hears; what a tenant's sockets are given is its feed's affair (tenant.py), with `alert_outbox` as the truth. While
Redis is away the relay tries again with back-off, and each look into the database finds what is new meanwhile; when it
is back every feed looks into the outbox, so nothing published in between is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from datetime import datetime
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from config.base.keys import DEFAULT_TENANT
from risk.feed import database, selectors, tenant
from risk.feed.keys import PUB_ALIVE, PUB_FEED, PUB_SIGNED_OUT
from risk.feed.logins import Logins
from risk.feed.source import Source
from risk.feed.tenant import TenantFeed
from risk.feed.watch import Known, Watcher, watchers_of

logger = logging.getLogger(__name__)

BACKOFF_FIRST = 0.1  # seconds, doubled ...
BACKOFF_MOST = 3.0  # ... up to here
SILENCE = 10.0  # seconds without a word before the server is pinged; as long again without an answer is an outage
DATABASE_SILENCE = 10.0  # seconds without a look that came back: the database hangs

DATABASE_AWAY = {
    "type": "error",
    "code": "DATABASE_UNAVAILABLE",
    "detail": "the database is away; alerts that come now are shown later",
}


class Socket(tenant.Socket, Protocol):
    """What the relay calls; none of these may wait."""

    session_key: str
    session: str  # digest of the login session
    watcher: Watcher | None  # None until the login was looked up

    def on_signed_out(self) -> None: ...

    def on_login(self, watcher: Watcher | None) -> None:
        """What the login is now."""


class Relay:
    """The sockets of one event loop. Its tasks live while there is a socket."""

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self.logins = Logins()
        self._source = Source()
        self._feeds: dict[str, TenantFeed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._known: Known = {}
        self._looked = 0.0
        self._trouble: dict[str, Any] = {}

    # --- sockets --------------------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        return len(self.sockets) >= settings.FEED_SOCKETS

    def of_person(self, user_id: int) -> int:
        return sum(one.watcher is not None and one.watcher.user_id == user_id for one in self.sockets)

    def join(self, socket: Socket) -> None:
        self.sockets.add(socket)
        if not self._tasks:
            self._source.begin()
            self._looked = time.monotonic()
            self._tasks = [
                asyncio.create_task(self._run(), name="feed-relay"),
                asyncio.create_task(self._watch(), name="feed-watch"),
                asyncio.create_task(self._beat(), name="feed-beat"),
            ]

    def leave(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        if socket.watcher is not None and (feed := self._feeds.get(socket.watcher.tenant)) is not None:
            feed.leave(socket)
            if not feed.sockets:
                feed.close()
                del self._feeds[socket.watcher.tenant]
        if not self.sockets:
            for task in self._tasks:
                task.cancel()
            self._tasks = []
            self._known = {}  # (a look may still be at the other)

    async def feed(self, socket: Socket) -> TenantFeed:
        """The feed of the socket's tenant, which it has joined. Errors: the database's, where it has to be opened."""
        assert socket.watcher is not None
        name = socket.watcher.tenant
        feed = self._feeds.get(name)
        if feed is None:
            feed = self._feeds[name] = TenantFeed(name)
        feed.sockets.add(socket)
        async with feed.opening:
            if not feed.opened.is_set():
                await feed.open()
        return feed

    # --- looking: who may still sit here, where the feeds stand -----------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(settings.FEED_WATCH_SECONDS)
            try:
                await self._look()
            except database.AWAY:
                if not self._database_is_away():
                    self._looked = -DATABASE_SILENCE
                    self._to_all(DATABASE_AWAY)
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("the feed's look at its logins failed; trying again")

    async def _look(self) -> None:
        keys = {one.session_key for one in self.sockets if one.watcher is not None}
        people, heads, unsent = await database.in_database(_look, keys, list(self._feeds), self._known)
        self._looked = time.monotonic()
        for socket in list(self.sockets):
            if socket.watcher is not None and socket.session_key in keys:
                socket.on_login(people.get(socket.session_key))
        for name, head in heads.items():
            if name in self._feeds:
                self._feeds[name].stands_at(head)
        self._source.waits(unsent)
        if self._source.trouble().get("why") != self._trouble.get("why"):
            self._heartbeat()

    def _database_is_away(self) -> bool:
        return time.monotonic() - self._looked > DATABASE_SILENCE + settings.FEED_WATCH_SECONDS

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(settings.FEED_HEARTBEAT_SECONDS)
            if self._database_is_away():
                self._to_all(DATABASE_AWAY)
            else:
                self._heartbeat()

    def _heartbeat(self) -> None:
        self._trouble = self._source.trouble()
        self._to_all({"type": "heartbeat", **self._trouble})

    def _to_all(self, body: dict[str, Any]) -> None:
        for feed in self._feeds.values():
            feed.beat(body)

    # --- hearing ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        wait = BACKOFF_FIRST
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                if self._source.subscribed:
                    wait = BACKOFF_FIRST
                logger.warning("the feed lost Redis (%s); trying again", type(error).__name__)
            except Exception:
                # A fault of ours must not leave every screen without news for good.
                logger.exception("the feed's relay failed; trying again")
            finally:
                if asyncio.current_task() in self._tasks:  # else another has taken over
                    self._source.subscribed = False
            await asyncio.sleep(wait * random.uniform(0.7, 1.3))  # noqa: S311 - jitter
            wait = min(BACKOFF_MOST, wait * 2)

    async def _listen(self) -> None:
        """Subscribes and carries until the connection fails. Errors: RedisError, OSError, TimeoutError."""
        channels = [key(DEFAULT_TENANT) for key in (PUB_FEED, PUB_SIGNED_OUT, PUB_ALIVE)]
        client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL,
            decode_responses=True,
            socket_connect_timeout=settings.REDIS_TIMEOUT,
            # No silent reconnecting: a new subscription must be followed by a look into the outbox.
            retry=Retry(NoBackoff(), 0),
        )
        pubsub = client.pubsub()
        try:
            await pubsub.subscribe(*channels)
            confirmed, asked = 0, False
            while True:
                message = await pubsub.get_message(timeout=SILENCE if self._source.subscribed else 2.0)
                if message is None:
                    if asked or not self._source.subscribed:
                        raise TimeoutError("Redis does not answer")
                    await pubsub.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":
                    confirmed += 1
                    if confirmed == len(channels):
                        self._source.subscribed = True
                        for feed in self._feeds.values():
                            feed.look()
                elif message["type"] == "message":
                    self._carry(channels.index(message["channel"]), message["data"])
        finally:
            with contextlib.suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]
                await client.aclose()

    def _carry(self, channel: int, data: str) -> None:
        """channel: 0 the feed, 1 log-outs, 2 that the publisher is alive."""
        if channel == 2:
            self._source.heard()
            return
        try:
            message = json.loads(data)
            if channel == 1:
                for socket in list(self.sockets):
                    if socket.session == message["session"]:
                        socket.on_signed_out()
                return
            name, seq, event = message["tenant"], message["seq"], message["event"]
            if not isinstance(seq, int) or not isinstance(event, dict):
                raise TypeError("seq or event")
            if feed := self._feeds.get(name):
                feed.hear(seq, event)
        except (ValueError, TypeError, KeyError):
            logger.warning("a message on the feed's channel is not ours; ignored")


def _look(
    keys: set[str], tenants: list[str], known: Known
) -> tuple[dict[str, Watcher], dict[str, int], datetime | None]:
    """8 queries for 1,000 logins."""
    return watchers_of(keys, known), selectors.heads(tenants=tenants), selectors.oldest_unsent()


_relays: WeakKeyDictionary[asyncio.AbstractEventLoop, Relay] = WeakKeyDictionary()


def relay() -> Relay:
    """The relay of the running event loop: one per ASGI process."""
    loop = asyncio.get_running_loop()
    if loop not in _relays:
        _relays[loop] = Relay()
    return _relays[loop]
