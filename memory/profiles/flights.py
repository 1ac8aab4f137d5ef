"""One load at a time of one profile in this process, for readers whom Redis has told nothing: it is away, or timed out.

Whoever comes while a load is under way may not have its result: that load may have read MySQL before a save whose call
has returned by now. They wait, one of them loads, and the others share that. So 200 readers who cannot ask Redis are
two loads, and each is given what MySQL had after it came.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class _Flight:
    def __init__(self) -> None:
        self.over = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Flights:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, _Flight] = {}
        self._next: dict[Hashable, _Flight] = {}

    def share(self, name: Hashable, load: Callable[[], T], *, patience: float) -> T:
        """What `load` gives, called here or by another thread since this one came; a copy of that one's.

        patience: seconds to wait for other threads; past them this one loads too. Errors: whatever `load` raises, the
        other thread's too.
        """
        with self._lock:
            ahead = self._under_way.get(name)
            joined = self._next.get(name) if ahead else None
            mine = joined or _Flight()
            if ahead is None:
                self._under_way[name] = mine
            elif joined is None:
                self._next[name] = mine
        if joined:
            if not joined.over.wait(2 * patience):
                return load()
            if joined.error is not None:
                raise joined.error
            result: T = copy.deepcopy(joined.result)
            return result
        if ahead is not None:
            ahead.over.wait(patience)
            with self._lock:
                self._next.pop(name, None)
                self._under_way[name] = mine
        try:
            mine.result = load()
            return mine.result  # type: ignore[no-any-return]
        except BaseException as error:
            mine.error = error
            raise
        finally:
            with self._lock:
                if self._under_way.get(name) is mine:
                    del self._under_way[name]
            mine.over.set()


flights = Flights()


def _after_fork() -> None:
    """Who is under way in the parent does not arrive here."""
    flights.forget()


os.register_at_fork(after_in_child=_after_fork)
