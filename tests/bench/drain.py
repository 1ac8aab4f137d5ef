"""The drain beside plain INSERTs into the same table, and (--long) how far the database lags behind under load."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, connections, transaction

from config.supervisor import children
from config.supervisor import process as processes
from memory.sessions import services
from memory.sessions.drain import BATCH_ENTRIES, backlog, drain
from memory.sessions.entries import NewMessage
from memory.sessions.models import AgentMessage
from tests.bench.turn import CALLER, TURN, make_session

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 6000
_NO_SESSION = 10**12  # no session has so high a key
SESSIONS = 20


def _queue(rows: int) -> None:
    """So many messages into the stream, in turns of two over some sessions."""
    sessions = [make_session() for _ in range(SESSIONS)]
    for n in range(rows // 40):
        batch: list[NewMessage] = [*TURN] * 20
        services.append_messages(caller=CALLER, session_id=sessions[n % SESSIONS], messages=batch)


def _drain_rate(rows: int) -> float:
    _queue(rows)
    queued = backlog()
    began = time.perf_counter()
    while backlog():
        drain(seconds=60)
    return queued / (time.perf_counter() - began)


def _raw_rate(rows: int, session_pk: int) -> float:
    """The newest rows again under another session, as tuples made beforehand: executemany, a commit every batch."""
    fields = [field for field in AgentMessage._meta.concrete_fields if not field.primary_key]
    names = [field.attname for field in fields]
    copies: list[tuple[Any, ...]] = []
    for n, row in enumerate(AgentMessage.objects.order_by("-pk").values(*names)[:rows]):
        assert row["payload"] is None  # nothing to convert
        row |= {"session_row_id": session_pk, "seq": n + 1, "created_at": row["created_at"].replace(tzinfo=None)}
        copies.append(tuple(row[name] for name in names))
    columns = ", ".join(field.column for field in fields)
    sql = f"INSERT INTO agent_message ({columns}) VALUES ({', '.join(['%s'] * len(fields))})"
    began = time.perf_counter()
    with connection.cursor() as cursor:
        for start in range(0, len(copies), BATCH_ENTRIES):
            with transaction.atomic():
                cursor.executemany(sql, copies[start : start + BATCH_ENTRIES])
    return len(copies) / (time.perf_counter() - began)


def drain_rates(rounds: int = 3, rows: int = ROWS) -> dict[str, float]:
    """Rows a second: drained, and inserted raw; median of interleaved rounds."""
    found: dict[str, list[float]] = {"drain": [], "raw": []}
    for n in range(rounds):
        found["drain"].append(_drain_rate(rows))
        found["raw"].append(_raw_rate(rows, _NO_SESSION + n))
    AgentMessage.objects.filter(session_row_id__gte=_NO_SESSION).delete()
    return {name: statistics.median(rates) for name, rates in found.items()}


# --- lag ----------------------------------------------------------------------------------------------------------

POLL_SECONDS = 0.1
# Keys are not handed out in the order of commits: a look goes back over so many, a few batches of the drain.
_BACK = 1500
# The database tells the ages: to make a hundred thousand dates of them here would take a good part of a core.
_LOOK = "SELECT id, TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) FROM agent_message WHERE id > %s"


def _wait_for_the_drain() -> None:
    _queue(40)
    until = time.monotonic() + 60
    while backlog():
        if time.monotonic() > until:
            raise RuntimeError("the worker does not drain")
        time.sleep(0.1)


def lag(rate: float, seconds: float) -> dict[str, float]:
    """Appends `rate` messages a second for so long beside the product's own beat and worker of the queue `persist`.

    Lag of a message: from its time in Redis to the first look (every 100 ms) that finds it in the database.
    Answers p50, p99 and max in seconds, the rate reached, and how many were lost."""
    session_names = [make_session() for _ in range(SESSIONS)]
    drainers = [processes.start(child.command, cwd=PROJECT) for child in (children.beat(), children.worker("persist"))]
    try:
        _wait_for_the_drain()
        return _lags(rate, seconds, session_names)
    finally:
        for drainer in drainers:
            processes.stop(drainer)


def _lags(rate: float, seconds: float, session_names: list[str]) -> dict[str, float]:
    lags: list[float] = []
    done = threading.Event()
    start_pk = AgentMessage.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    def watch() -> None:
        last, seen = start_pk, set[int]()
        try:
            while not done.is_set():
                time.sleep(POLL_SECONDS)
                with connection.cursor() as cursor:
                    cursor.execute(_LOOK, [max(start_pk, last - _BACK)])
                    found = [row for row in cursor.fetchall() if row[0] not in seen]
                lags.extend(age / 1e6 for _, age in found)
                seen.update(pk for pk, _ in found)
                last = max(seen, default=last)
                seen = {pk for pk in seen if pk > last - _BACK}
        finally:
            connections.close_all()

    watcher = threading.Thread(target=watch)
    watcher.start()
    sent, began = 0, time.perf_counter()
    try:
        while (elapsed := time.perf_counter() - began) < seconds:
            if sent > elapsed * rate:
                time.sleep(0.002)
                continue
            services.append_messages(
                caller=CALLER, session_id=session_names[sent // 40 % SESSIONS], messages=[*TURN] * 20
            )
            sent += 40
        took = time.perf_counter() - began
        until = time.monotonic() + 30
        while len(lags) < sent and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        done.set()
        watcher.join()
    lags.sort()
    return {
        "p50": lags[len(lags) // 2],
        "p99": lags[int(len(lags) * 0.99)],
        "max": lags[-1],
        "rate": sent / took,
        "lost": sent - AgentMessage.objects.filter(session_id__in=session_names).count(),
    }
