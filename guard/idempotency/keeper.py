"""One thread of this process renews the leases of all requests at work: most are over before theirs is due."""

from __future__ import annotations

import logging
import os
import threading
import time

from config.base.redis import RedisUnavailable
from guard.idempotency import records
from guard.idempotency.records import Claim

logger = logging.getLogger(__name__)

# No request works longer. Should one's end have been missed, its key is free so much later, and not never.
LONGEST_SECONDS = 900.0


class Keeper:
    """Claims at work, and when each is to be renewed. Costs nobody anything while there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[Claim, tuple[float, float]] = {}  # when to renew, when to give it up
        self._some = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, claim: Claim) -> None:
        now = time.monotonic()
        with self._lock:
            self._due[claim] = (now + records.LEASE_SECONDS / 3, now + LONGEST_SECONDS)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="idempotency-leases", daemon=True)
                self._thread.start()
        self._some.set()

    def drop(self, claim: Claim) -> None:
        with self._lock:
            self._due.pop(claim, None)

    def _run(self) -> None:
        while True:
            self._some.wait()
            time.sleep(records.LEASE_SECONDS / 15)
            try:
                self._renew_due()
            except Exception:
                # A lease that is not renewed ends; the others must not end with it.
                logger.exception("renewing the leases of requests failed")

    def _renew_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._due:
                self._some.clear()
            for claim in [claim for claim, (_, end) in self._due.items() if end <= now]:
                del self._due[claim]
            due = [claim for claim, (at, _) in self._due.items() if at <= now]
        for claim in due:
            try:
                kept = claim.renew()
            except RedisUnavailable:
                continue  # again at the next turn
            with self._lock:
                if not kept:
                    self._due.pop(claim, None)  # somebody else has it: what this one answers is not kept
                elif claim in self._due:
                    self._due[claim] = (time.monotonic() + records.LEASE_SECONDS / 3, self._due[claim][1])


keeper = Keeper()


def _after_fork() -> None:
    """In a forked child: the thread and the requests are the parent's."""
    global keeper
    keeper = Keeper()


os.register_at_fork(after_in_child=_after_fork)
