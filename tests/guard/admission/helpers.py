"""A small cast: Alice and Bob, customers; limits of their own."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import connections

from config.base import redis as base_redis
from config.base.keys import prefixed
from guard.access.services import Caller
from guard.admission import limits
from guard.admission.policy import forget_policy
from guard.admission.services import admit
from guard.admission.verdict import Verdict
from guard.audit.models import AuditLog

ALICE = Caller("default", "customer", "alice")
BOB = Caller("default", "customer", "bob")
WIDE = {
    "rate": None,
    "hourly": None,
    "ip": None,
    "quota": None,
    "budget": None,
    "tenant_running": None,
    "user_running": None,
}


def make_limit(kind: str, value: Any, **place: Any) -> None:
    limits.set_limit(tenant=place.pop("tenant", "default"), kind=kind, value=value, by="officer", **place)


def make_wide(**narrow: Any) -> None:
    """No limit but those named."""
    for kind, value in {**WIDE, **narrow}.items():
        make_limit(kind, value)
    forget_policy()


def admitted(caller: Caller = ALICE, **arguments: Any) -> Verdict:
    return admit(caller, **arguments).or_raise()


def name_of(key: Any, **parts: Any) -> str:
    return key(parts.pop("tenant", "default"), **parts)


def redis_keys(pattern: str = "*") -> list[str]:
    client = base_redis.state()
    return sorted(name.removeprefix(prefixed("")) for name in client.scan_iter(prefixed(pattern), count=1000))


def empty_redis() -> None:
    client = base_redis.state()
    names = list(client.scan_iter(prefixed("*"), count=1000))
    if names:
        client.delete(*names)


def together(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(n)` returned in each of so many threads, begun at once."""
    barrier, results = threading.Barrier(threads), [None] * threads

    def run(n: int) -> None:
        try:
            barrier.wait()
            results[n] = work(n)
        finally:
            connections.close_all()

    started = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return results


def audit_rows(event: str) -> list[AuditLog]:
    return list(AuditLog.objects.filter(event_type=event).order_by("id"))


def new_session() -> str:
    return f"chat-{uuid.uuid4().hex}"


def cents(text: str) -> Decimal:
    return Decimal(text)
