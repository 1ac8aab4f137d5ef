"""For how long an advisor's last load stands for the assignment, while the core, which has the assignments, is away.

A load notes "the advisor had the customer". Whoever learns that the advisor has the customer no longer, by whatever
request, takes the note back at once: a known "no" is never older than a "yes" that is believed. A load that was
admitted before the "no" and ends after it notes nothing (deny.lua).

Redis away while a "no" is learnt: this process remembers it and tells Redis before it believes the note again. Other
processes do not know of it: they may believe the note, if Redis comes back with it and the core then goes away, to its
end (SNAPSHOT_GRACE_SECONDS).
"""

from __future__ import annotations

import threading
import time
from datetime import datetime

from django.conf import settings

from memory.core import selectors as core
from memory.core.window import statement_seconds
from memory.profiles import leased
from memory.profiles.snapshots import keys

_MOST = 10_000
_untold: dict[str, float] = {}  # note -> time.monotonic() until which it may still stand in Redis
_all_until = 0.0  # so many of them that no note is believed before this
_lock = threading.Lock()


def is_assigned(tenant: str, advisor_id: str, customer_id: str, at: datetime) -> bool:
    """As the core says, and a "no" takes the note back. Of a "no" 1 round trip more, where the core is external.
    Errors: CORE_UNAVAILABLE."""
    if core.is_assigned(tenant, advisor_id, customer_id, at):
        return True
    if _is_given():
        _deny(_name(tenant, advisor_id, customer_id))
    return False


def note_had(tenant: str, advisor_id: str, customer_id: str) -> None:
    """The advisor has the customer, and has loaded the snapshot. 1 round trip; none with a core of our own, which is
    never away alone."""
    name = _name(tenant, advisor_id, customer_id)
    if _is_given() and _told(name):
        leased.note(name, seconds=settings.SNAPSHOT_GRACE_SECONDS)


def had(tenant: str, advisor_id: str, customer_id: str) -> bool:
    """Whether that is noted, and nobody has learnt otherwise since. 1 round trip."""
    name = _name(tenant, advisor_id, customer_id)
    return _is_given() and _told(name) and leased.note(name, seconds=0)


def forget() -> None:
    """What this process could not tell Redis."""
    global _all_until
    with _lock:
        _untold.clear()
        _all_until = 0.0


def _is_given() -> bool:
    return bool(settings.CORE_IS_EXTERNAL and settings.SNAPSHOT_GRACE_SECONDS)


def _name(tenant: str, advisor_id: str, customer_id: str) -> str:
    return keys.SNAPSHOT_SEEN(tenant, advisor_id=advisor_id, customer_id=customer_id)


def _deny(name: str) -> bool:
    global _all_until
    # Longer than a load takes: five queries, each to its time, and a connection before.
    if leased.deny(name, seconds=60 + 6 * statement_seconds()):
        with _lock:
            _untold.pop(name, None)
        return True
    until = time.monotonic() + settings.SNAPSHOT_GRACE_SECONDS
    with _lock:
        if len(_untold) >= _MOST:
            _untold.clear()
            _all_until = until
        _untold[name] = until
    return False


def _told(name: str) -> bool:
    """Whether Redis knows all that this process has learnt of the pair; what it does not know it is told now."""
    moment = time.monotonic()
    if moment < _all_until:
        return False
    with _lock:
        until = _untold.get(name, 0.0)
    return moment >= until or _deny(name)
