"""`cache:invalidate`: a key revoked or rotated in one process is forgotten by all others at once.

Publish/subscribe keeps nothing, and nothing rests on it: a cached key is at most PRINCIPAL_CACHE_SECONDS old. With
Redis away that is what a revocation takes; when it is back, what is remembered is forgotten.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis
from django.conf import settings

from config.base.redis import RedisUnavailable, Script
from guard.access.blacklist import quick
from guard.access.keys import INVALIDATE

logger = logging.getLogger(__name__)

PRINCIPAL = "principal"
RETRY_SECONDS = 1.0
_tell = Script.beside(__file__, "tell")
SILENCE = 15.0  # seconds without a word before the server is asked whether it is there


def tell_forgotten(principal_id: str) -> None:
    """To every process that listens. Redis away: nobody is told, and the caches' age decides."""
    with suppress(RedisUnavailable):
        _tell(quick(), [INVALIDATE()], [json.dumps({"kind": PRINCIPAL, "id": principal_id})])


class Listener:
    """A daemon thread with a connection of its own. forget: one id, or None for all of them; must not raise."""

    def __init__(self, forget: Callable[[str | None], None]) -> None:
        self._forget = forget
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.listening = threading.Event()

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="cache-invalidate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(SILENCE)

    def _run(self) -> None:
        told = False
        while not self._stop.is_set():
            try:
                self._listen()
            except (redis.RedisError, OSError, ValueError) as error:
                if self.listening.is_set() or not told:
                    logger.warning("no news of revoked keys (%s): they count within 5 s", type(error).__name__)
                told = True
            self.listening.clear()
            self._stop.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        client = redis.Redis.from_url(
            settings.REDIS_URL, decode_responses=True, socket_timeout=2.0, socket_connect_timeout=2.0
        )
        try:
            with client.pubsub() as channel:
                channel.subscribe(INVALIDATE())
                heard = asked = time.monotonic()
                while not self._stop.is_set():
                    message = channel.get_message(timeout=1.0)
                    moment = time.monotonic()
                    if message is None:
                        if moment - heard > 2 * SILENCE:
                            raise redis.TimeoutError("no answer to PING")
                        if moment - max(heard, asked) > SILENCE:
                            channel.ping()
                            asked = moment
                        continue
                    heard = moment
                    if message["type"] == "subscribe":
                        self._forget(None)  # what was told before this was not heard
                        self.listening.set()
                    elif message["type"] == "message":
                        self._take(message["data"])
        finally:
            client.close()

    def _take(self, data: str) -> None:
        try:
            said = json.loads(data)
            kind, one = said["kind"], str(said["id"])
        except (ValueError, KeyError, TypeError):
            self._forget(None)  # not understood: forgetting too much costs a query
            return
        if kind == PRINCIPAL:
            self._forget(one)


_listener: Listener | None = None


def listen() -> None:
    """Starts this process's listener, once; in a forked child it starts again. For processes that serve requests."""
    global _listener
    from guard.access.principals import forget_principal, forget_principals

    if _listener is not None:
        return

    def forget(principal_id: str | None) -> None:
        if principal_id is None:
            forget_principals()
        else:
            forget_principal(principal_id)

    _listener = Listener(forget)
    _listener.start()
    os.register_at_fork(after_in_child=_listener.start)
