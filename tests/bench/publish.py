"""From the commit of an alert to the message at a subscriber of `risk:pub:alert`, by the product's own processes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from django.db import transaction

from config.base.redis import state
from config.supervisor import children
from config.supervisor import process as processes
from risk.alerts.models import AlertOutbox
from risk.alerts.services import settle_customer
from risk.feed.keys import PUB_ALERT
from risk.rules.hit import FinalTrade
from tests.risk.alerts.people import make_hit

PROJECT = Path(__file__).resolve().parents[2]
ALERTS_A_SECOND = 20.0


def open_alert(number: int, committed: dict[str, float]) -> None:
    """One alert of a customer of its own; `committed` gets the instant by the alert's trace id."""
    hit = make_hit(f"B{number}", customer=f"C{number:07d}")
    trace_id = f"{number:032x}"

    def mark() -> None:
        committed[trace_id] = time.monotonic()

    with transaction.atomic():
        transaction.on_commit(mark)  # the first of them: right after the COMMIT
        settle_customer(
            tenant="default",
            customer_id=hit.customer_id,
            hits=[hit],
            final_trades={hit.trade_id: FinalTrade(1, "executed")},
            trace_id=trace_id,
        )


def delays(seconds: float) -> dict[str, float]:
    """Opens ALERTS_A_SECOND for so long beside beat and the worker of the queue `publish`, which seals and sweeps
    meanwhile as it does in production.

    Answers p50, p99 and max in seconds, the rate reached, how many were lost and how many came twice."""
    committed: dict[str, float] = {}
    heard: dict[str, float] = {}
    twice = 0
    over = threading.Event()
    pubsub = state().pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(PUB_ALERT("default"))

    def listen() -> None:
        nonlocal twice
        while not over.is_set():
            message = pubsub.get_message(timeout=0.2)
            if message is None:
                continue
            trace_id = json.loads(message["data"])["trace_id"]
            twice += trace_id in heard
            heard.setdefault(trace_id, time.monotonic())

    listener = threading.Thread(target=listen)
    listener.start()
    workers = [processes.start(child.command, cwd=PROJECT) for child in (children.beat(), children.worker("publish"))]
    try:
        open_alert(0, committed)
        _wait(lambda: len(heard) == 1, "the worker does not publish")
        committed.clear()  # that one waited for the worker to start
        began = time.monotonic()
        number = 0
        while (elapsed := time.monotonic() - began) < seconds:
            if number > elapsed * ALERTS_A_SECOND:
                time.sleep(0.001)
                continue
            number += 1
            open_alert(number, committed)
        took = time.monotonic() - began
        with suppress(RuntimeError):  # then some are told as lost
            _wait(lambda: len(heard) == number + 1, "", patience=15.0)
    finally:
        for worker in workers:
            processes.stop(worker)
        over.set()
        listener.join()
        pubsub.close()
    waited = sorted(heard[trace_id] - at for trace_id, at in committed.items() if trace_id in heard)
    return {
        "p50": waited[len(waited) // 2],
        "p99": waited[int(len(waited) * 0.99)],
        "max": waited[-1],
        "rate": number / took,
        "lost": len(committed) - len(waited) + AlertOutbox.objects.filter(published_at=None).count(),
        "twice": twice,
    }


def _wait(condition: Callable[[], bool], what: str, patience: float = 60.0) -> None:
    until = time.monotonic() + patience
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(what)
        time.sleep(0.05)
