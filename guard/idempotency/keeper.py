"""One thread of this process renews the leases of all requests at work: most are over before theirs is due. It also
keeps answers that could not be kept at once, for Redis was slow or away at that moment."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass

from config.base.redis import RedisUnavailable
from guard.idempotency import records
from guard.idempotency.records import Answer, Claim

logger = logging.getLogger(__name__)

# No request works longer. Should one's end have been missed, its key is free so much later, and not never.
LONGEST_SECONDS = 900.0
# Answers that wait for Redis, at most 256 KiB each; more are not kept.
MOST_WAITING = 64


@dataclass
class _Held:
    """due: when to renew, or to try again; end: when to give up (time.monotonic()). answer: of work that is done."""

    due: float
    end: float
    answer: Answer | None = None


class Keeper:
    """Claims at work, and when each is to be renewed. Costs nobody anything while there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Claim, _Held] = {}
        self._some = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, claim: Claim) -> None:
        """Renews the claim until `drop`."""
        now = time.monotonic()
        self._take(claim, _Held(now + records.lease() / 3, now + LONGEST_SECONDS))

    def keep_answer(self, claim: Claim, answer: Answer) -> None:
        """Puts the answer as soon as Redis takes it, for as long as the key is still the claim's: until then a repeat
        is told that the work goes on."""
        now = time.monotonic()
        with self._lock:
            waiting = sum(held.answer is not None for held in self._held.values())
        if waiting >= MOST_WAITING:
            records.tell_not_kept()
            return
        self._take(claim, _Held(now, now + LONGEST_SECONDS, answer))

    def drop(self, claim: Claim) -> None:
        with self._lock:
            self._held.pop(claim, None)

    def _take(self, claim: Claim, held: _Held) -> None:
        with self._lock:
            self._held[claim] = held
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="idempotency-leases", daemon=True)
                self._thread.start()
        self._some.set()

    def _run(self) -> None:
        while True:
            self._some.wait()
            time.sleep(records.lease() / 15)
            try:
                self._look()
            except Exception:
                # A lease that is not renewed ends; the others must not end with it.
                logger.exception("renewing the leases of requests failed")

    def _look(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._held:
                self._some.clear()
            for claim in [claim for claim, held in self._held.items() if held.end <= now]:
                if self._held.pop(claim).answer is not None:
                    records.tell_not_kept()
            due = [(claim, held) for claim, held in self._held.items() if held.due <= now]
        for claim, held in due:
            try:
                goes_on = claim.renew() if held.answer is None else self._put(claim, held.answer)
            except RedisUnavailable:
                continue  # again at the next turn
            with self._lock:
                if self._held.get(claim) is not held:
                    continue  # over meanwhile
                if goes_on:
                    held.due = time.monotonic() + records.lease() / 3
                else:
                    del self._held[claim]  # somebody else has it: what this one answers is not kept

    def _put(self, claim: Claim, answer: Answer) -> bool:
        """Errors: RedisUnavailable."""
        if not claim.put(answer, patience=records.PATIENCE):
            records.tell_not_kept()
        return False


keeper = Keeper()


def _after_fork() -> None:
    """In a forked child: the thread and the requests are the parent's."""
    global keeper
    keeper = Keeper()


os.register_at_fork(after_in_child=_after_fork)
