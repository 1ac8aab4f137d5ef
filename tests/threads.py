"""Races: the same work in many threads that begin together, each with database connections of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

# Threads of ours that tell Redis something now and then, whoever calls: no part of a call's cost.
_OF_THEIR_OWN = {"admission-counts", "admission-ends", "cache-invalidate", "idempotency-leases"}


def of_its_own() -> bool:
    """Whether this runs in such a thread, which an earlier test may have started."""
    return threading.current_thread().name in _OF_THEIR_OWN


class Threads:
    """Runs `work` in `how_many` threads; `answers` fills with results and exceptions in the order of their ends."""

    def __init__(self, how_many: int, work: Callable[[], Any]) -> None:
        self.answers: list[Any] = []
        start = threading.Barrier(how_many)

        def run() -> None:
            try:
                start.wait()
                self.answers.append(work())
            except BaseException as error:
                self.answers.append(error)
            finally:
                connections.close_all()

        self._threads = [threading.Thread(target=run, daemon=True) for _ in range(how_many)]
        for thread in self._threads:
            thread.start()

    def end(self) -> list[Any]:
        """All answers, once all are there."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.answers


def take_turns(hold: Callable[[], Any], *, threads: int = 16, times: int = 5) -> list[int]:
    """Each thread takes the lock so often, and none meets another inside; the fencing numbers in the order in which
    they were given, which is theirs."""
    inside, numbers = [0], []

    def work() -> None:
        for _ in range(times):
            with hold() as lock:
                inside[0] += 1
                assert inside[0] == 1
                numbers.append(lock.fence)
                inside[0] -= 1

    answers = Threads(threads, work).end()
    assert answers == [None] * threads, answers
    assert numbers == sorted(set(numbers))
    assert len(numbers) == threads * times
    return numbers
