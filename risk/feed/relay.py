"""One Redis subscription for all sockets of a process, and the fan-out to them.

It only carries: what a socket has sent, what it missed and where it goes on is the socket's affair (consumer.py),
with `alert_outbox` as the truth. While Redis is away the relay tries again with back-off; when it is back every
socket looks into the outbox, so nothing published in between is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from config.base.keys import DEFAULT_TENANT
from risk.feed.keys import PUB_FEED, PUB_SIGNED_OUT

logger = logging.getLogger(__name__)

BACKOFF_FIRST = 0.1  # seconds, doubled ...
BACKOFF_MOST = 3.0  # ... up to here
SILENCE = 10.0  # seconds without a word before the server is pinged; as long again without an answer is an outage


class Socket(Protocol):
    """What the relay calls; none of these may wait."""

    tenant: str
    session: str  # digest of the login session

    def on_event(self, seq: int, event: dict[str, Any]) -> None: ...
    def on_gap(self) -> None: ...
    def on_signed_out(self) -> None: ...


class Relay:
    """The sockets of one event loop. The subscription lives while there is a socket."""

    def __init__(self) -> None:
        self._sockets: set[Socket] = set()
        self._task: asyncio.Task[None] | None = None
        self.subscribed = asyncio.Event()

    def join(self, socket: Socket) -> None:
        self._sockets.add(socket)
        if self._task is None or self._task.done():
            self.subscribed.clear()
            self._task = asyncio.create_task(self._run(), name="feed-relay")

    def leave(self, socket: Socket) -> None:
        self._sockets.discard(socket)
        if not self._sockets and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        wait = BACKOFF_FIRST
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                if self.subscribed.is_set():
                    wait = BACKOFF_FIRST
                logger.warning("the feed lost Redis (%s); trying again", type(error).__name__)
            except Exception:
                # A fault of ours must not leave every screen without news for good.
                logger.exception("the feed's relay failed; trying again")
            finally:
                self.subscribed.clear()
            await asyncio.sleep(wait * random.uniform(0.7, 1.3))  # noqa: S311 - jitter
            wait = min(BACKOFF_MOST, wait * 2)

    async def _listen(self) -> None:
        """Subscribes and carries until the connection fails. Errors: RedisError, OSError, TimeoutError."""
        feed, signed_out = PUB_FEED(DEFAULT_TENANT), PUB_SIGNED_OUT(DEFAULT_TENANT)
        client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL,
            decode_responses=True,
            socket_connect_timeout=settings.REDIS_TIMEOUT,
            # No silent reconnecting: a new subscription must be followed by a look into the outbox.
            retry=Retry(NoBackoff(), 0),
        )
        pubsub = client.pubsub()
        try:
            await pubsub.subscribe(feed, signed_out)
            confirmed, asked = 0, False
            while True:
                message = await pubsub.get_message(timeout=SILENCE if self.subscribed.is_set() else 2.0)
                if message is None:
                    if asked or not self.subscribed.is_set():
                        raise TimeoutError("Redis does not answer")
                    await pubsub.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":
                    confirmed += 1
                    if confirmed == 2:
                        self.subscribed.set()
                        for socket in list(self._sockets):
                            socket.on_gap()
                elif message["type"] == "message":
                    self._carry(message["channel"] == feed, message["data"])
        finally:
            with contextlib.suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]
                await client.aclose()

    def _carry(self, is_feed: bool, data: str) -> None:
        try:
            message = json.loads(data)
            if is_feed:
                tenant, seq, event = message["tenant"], message["seq"], message["event"]
                if not isinstance(seq, int) or not isinstance(event, dict):
                    raise TypeError("seq or event")
            else:
                session = message["session"]
        except (ValueError, TypeError, KeyError):
            logger.warning("a message on the feed's channel is not ours; ignored")
            return
        for socket in list(self._sockets):
            if is_feed:
                if socket.tenant == tenant:
                    socket.on_event(seq, event)
            elif socket.session == session:
                socket.on_signed_out()


_relays: WeakKeyDictionary[asyncio.AbstractEventLoop, Relay] = WeakKeyDictionary()


def relay() -> Relay:
    """The relay of the running event loop: one per ASGI process."""
    loop = asyncio.get_running_loop()
    if loop not in _relays:
        _relays[loop] = Relay()
    return _relays[loop]
