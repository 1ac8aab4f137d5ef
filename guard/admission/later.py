"""Ends of admissions that Redis could not be told, told when it is back.

Redis may have admitted a call although its caller never heard so (the answer was lost, the server was killed after it):
its slot ends with its lease, but nobody should wait for that when the call is over. A process that dies before Redis is
back has told nothing: then lease and reservation end by their time.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

from redis.exceptions import ResponseError

from config.base.redis import RedisUnavailable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
_MOST = 20_000

_waiting: dict[str, Callable[[], object]] = {}
_lock = threading.Lock()
_thread: threading.Thread | None = None
_pause = threading.Event()
atexit.register(lambda: tell_now())


def tell_later(token: str, tell: Callable[[], object]) -> None:
    """tell: harmless to repeat; raises RedisUnavailable while Redis is away. Cost: no I/O."""
    global _thread
    with _lock:
        if len(_waiting) >= _MOST:
            logger.warning("too many ends of admissions wait for Redis: leases and reservations end by their time")
            return
        _waiting[token] = tell
        if _thread is None:
            _thread = threading.Thread(target=_tell_again_and_again, name="admission-ends", daemon=True)
            _thread.start()


def tell_now() -> bool:
    """Whether all that waited was told."""
    for token, tell in list(_waiting.items()):
        try:
            tell()
        except RedisUnavailable:
            return False
        except ResponseError:
            logger.exception("the end of an admission cannot be told")
        _waiting.pop(token, None)
    return True


def _tell_again_and_again() -> None:
    global _thread
    while True:
        _pause.wait(RETRY_SECONDS)
        if tell_now():
            with _lock:
                if not _waiting:
                    _thread = None
                    return


def forget_later() -> None:
    with _lock:
        _waiting.clear()


def _after_fork() -> None:
    global _thread, _lock
    _lock, _thread = threading.Lock(), None
    _waiting.clear()  # the parent tells its own


os.register_at_fork(after_in_child=_after_fork)
