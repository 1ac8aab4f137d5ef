"""How many admissions there were, by limit and outcome: counted by each process, added up in Redis every few seconds.

An admission is one round trip, and stays one: a thread of its own tells Redis. What a process had not told yet when it
was killed (of COUNT_SECONDS at most, of longer while Redis is away) is missing.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from django.conf import settings
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.outages import OUTAGES
from config.base.redis import RedisUnavailable, translated
from guard.access.models import AgentPrincipal
from guard.admission import keys, periods

logger = logging.getLogger(__name__)

COUNT_SECONDS = 5.0

_ADMITTED = ":admitted:redis"
# of those that are fields of a budget always, or at times; all others are reservations
_FIELDS = ("server", "spent", "number", "held", "about", "next", "lost", "stale")

_COUNTED = re.compile(r"[a-z_]*:(?:admitted|refused):(?:redis|local)", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)

_counts: Counter[str] = Counter()  # "{limit that refused, or ''}:{admitted|refused}:{redis|local}"
_counting = threading.Lock()
_thread: threading.Thread | None = None
telling = True  # False in tests: keys would come at any time


def count(refused_by: str, local: bool) -> None:
    """One decision. Cost: no I/O."""
    name = _ADMITTED
    if refused_by or local:
        name = f"{refused_by}:{'refused' if refused_by else 'admitted'}:{'local' if local else 'redis'}"
    with _counting:
        _counts[name] += 1
    if _thread is None and telling:
        _start()


def _start() -> None:
    global _thread
    with _counting:
        if _thread is None:
            atexit.register(tell)
            _thread = threading.Thread(target=_tell_again_and_again, name="admission-counts", daemon=True)
            _thread.start()


def _tell_again_and_again() -> None:
    global _thread
    pause = threading.Event()
    while True:
        pause.wait(COUNT_SECONDS)
        if not telling:
            _thread = None
            return
        try:
            tell()
        except Exception:  # the thread goes on
            logger.exception("admissions could not be counted")


def tell() -> None:
    """Adds this process's counts to those in Redis. Redis away: with the next call. Cost: 1 round trip, or none."""
    with _counting:
        told = dict(_counts)
        _counts.clear()
    if not told:
        return
    try:
        with translated():
            batch = base_redis.state().pipeline(transaction=True)
            for name, number in told.items():
                batch.hincrby(keys.COUNTS(), name, number)
            batch.expire(keys.COUNTS(), keys.COUNTS_SECONDS)
            batch.execute()
    except (RedisUnavailable, ResponseError) as error:
        with _counting:
            _counts.update(told)
        if isinstance(error, ResponseError):  # a key of another type, or a count that is none
            with suppress(RedisUnavailable), translated():
                base_redis.state().delete(keys.COUNTS())


def _after_fork() -> None:
    """The parent tells its own; its thread is not here."""
    global _thread, _counting
    _thread, _counting = None, threading.Lock()
    _counts.clear()


os.register_at_fork(after_in_child=_after_fork)


def forget_counts() -> None:
    with _counting:
        _counts.clear()


class AdmissionCollector(Collector):
    """For `/metrics`. What cannot be asked now is absent. Cost: 1 query, 2 round trips."""

    def collect(self) -> Iterator[Metric]:
        tell()
        try:
            tenants = sorted(set(AgentPrincipal.objects.order_by().values_list("tenant", flat=True).distinct()))
            with translated():
                yield from _measured(tenants)
        except (*OUTAGES, ResponseError) as error:
            logger.warning("admissions cannot be measured: %s", type(error).__name__)


def _measured(tenants: list[str]) -> list[Metric]:
    # Somebody else may have written there: other types, fields that are no counts, bytes that are no text.
    client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros // 1000
    month = periods.day_at(periods.days_around(now_ms), now_ms)[:7]
    batch = client.pipeline(transaction=False)
    batch.hgetall(keys.COUNTS())
    for tenant in tenants:
        batch.zcount(keys.TENANT_ACTIVE(tenant), f"({now_ms}", "+inf")
        batch.hlen(keys.BUDGET(tenant, month=month))
        batch.hmget(keys.BUDGET(tenant, month=month), _FIELDS)
    counts, *found = batch.execute(raise_on_error=False)
    for error in (counts, *found):
        if isinstance(error, ResponseError) and not str(error).startswith("WRONGTYPE"):
            raise error
    decided = CounterMetricFamily(
        "xinghuo_admissions",
        "Decisions about work before it starts, by the limit that refused; where: redis, or local while Redis is away",
        labels=["limit", "outcome", "where"],
    )
    for name, number in sorted(counts.items()) if isinstance(counts, dict) else ():
        if _COUNTED.fullmatch(name) and _NUMBER.fullmatch(number):
            decided.add_metric(name.split(":"), int(number))
    running = GaugeMetricFamily("xinghuo_admission_running_slots", "Calls and runs that hold a slot now")
    running.add_metric([], sum(slots for slots in found[0::3] if isinstance(slots, int)))
    open_now = GaugeMetricFamily(
        "xinghuo_admission_open_reservations", "Calls that hold a part of this month's budget, those that died included"
    )
    budgets = [(size, known) for size, known in zip(found[1::3], found[2::3], strict=True) if isinstance(size, int)]
    open_now.add_metric([], sum(size - sum(value is not None for value in known) for size, known in budgets))
    return [decided, running, open_now]
