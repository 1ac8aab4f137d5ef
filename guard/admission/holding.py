"""An admission for a `with` or `async with` block: admitted, kept by renewal, ended whatever happens.

    with hold(caller, action="chat", estimate="0.40") as held:
        ...                      # held.check() before each step that must not be done without the slot
        held.settle("0.31")

A lease can always be lost: its holder was suspended, or Redis lost it. So the holder is told (`lost`, `check()`, and
LEASE_LOST at the end of the block), by the renewing thread or by the clock when that thread did not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any

from config.base.errors import DomainError
from config.base.offload import in_thread
from config.base.redis import RedisUnavailable
from guard.access.services import Caller
from guard.admission.ending import Settlement, release, renew, settle
from guard.admission.services import admit
from guard.admission.verdict import Verdict

logger = logging.getLogger(__name__)

# Of its time, what the holder does not count on: its clock and the server's need not run alike.
_MARGIN = 0.05


class Held:
    """An admission under way. Made by `hold`."""

    def __init__(self, verdict: Verdict, began: float, on_lost: Callable[[], None] | None) -> None:
        self.verdict = verdict
        self._on_lost = on_lost
        self._until = began + verdict.lease * (1 - _MARGIN)
        self._lost = threading.Event()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._settled = False
        self._began_work = True
        self._thread: threading.Thread | None = None
        if verdict.lease:
            self._thread = threading.Thread(target=self._keep, name=f"lease-{verdict.token[:8]}", daemon=True)
            self._thread.start()

    @property
    def fence(self) -> int:
        return self.verdict.fence

    @property
    def lost(self) -> bool:
        """Whether it is certain or possible that its slot is another's now. Never False again after True."""
        if self.verdict.lease and not self._ended.is_set() and time.monotonic() >= self._until:
            self._lose()
        return self._lost.is_set()

    def check(self) -> None:
        """Errors: LEASE_LOST (409)."""
        if self.lost:
            raise DomainError("LEASE_LOST", "the lease was lost while the work went on; stop")

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until it is lost, or ended, at most `timeout` seconds; returns `lost`."""
        self._lost.wait(timeout)
        return self.lost

    def unused(self) -> None:
        """No work was begun: at the end of the block the day's call is given back too."""
        self._began_work = False

    def settle(self, actual: Decimal | int | str) -> Settlement:
        """What it cost: see `ending.settle`. The slot stays until the block ends."""
        verdict = self.verdict
        done = settle(verdict.caller, verdict, actual=actual, keep=True)
        self._settled = True
        return done

    def end(self) -> None:
        """Gives back the slot, and the reservation where nothing was settled. Harmless to repeat, or without Redis."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self.verdict.lease)
        verdict = self.verdict
        with contextlib.suppress(RedisUnavailable):
            release(verdict.caller, verdict, unused=not self._began_work and not self._settled)

    def _lose(self) -> None:
        with self._telling:
            if self._lost.is_set():
                return
            self._lost.set()
        logger.warning("lease of an admission lost")
        if self._on_lost is not None:
            self._on_lost()

    def _keep(self) -> None:
        """Renews at a third of its time; while Redis is away tries again, until the time is over."""
        verdict = self.verdict
        pause = verdict.lease / 3
        while not self._ended.wait(pause):
            began = time.monotonic()
            try:
                renew(verdict.caller, verdict, lease=verdict.lease)
                self._until = began + verdict.lease * (1 - _MARGIN)
                pause = verdict.lease / 3
                continue
            except DomainError:
                self._lose()
                return
            except RedisUnavailable:
                pause = min(0.2, verdict.lease / 10)
            except Exception:
                # Whatever it is, an unrenewed lease is over when its time is.
                logger.exception("renewing the lease of an admission failed")
                pause = min(1.0, verdict.lease / 10)
            if self.lost:
                return


def take(caller: Caller, *, on_lost: Callable[[], None] | None = None, **arguments: Any) -> Held:
    """Admits and keeps it until `Held.end()`; `hold` does both. Errors: those of Verdict.error, and of `admit`."""
    began = time.monotonic()
    verdict = admit(caller, **arguments).or_raise()
    return Held(verdict, began, on_lost)


class Hold:
    """`with` and `async with`. LEASE_LOST is raised at the end of a block whose lease was lost meanwhile and that did
    not raise itself. Cancelled while it is admitted, `async with` holds nothing; cancelled within, it ends."""

    def __init__(self, caller: Caller, arguments: dict[str, Any]) -> None:
        self._caller, self._arguments = caller, arguments
        self._held: Held | None = None
        self._settling = threading.Lock()
        self._given_up = False

    def __enter__(self) -> Held:
        self._held = take(self._caller, **self._arguments)
        return self._held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._held
        assert held is not None
        was_lost = held.lost
        held.end()
        if kind is None and was_lost:
            raise DomainError("LEASE_LOST", "the lease was lost while the work went on")

    async def __aenter__(self) -> Held:
        try:
            return await in_thread(self._take)
        except asyncio.CancelledError:
            with self._settling:
                self._given_up = True
                held = self._held
            if held is not None:
                held.unused()
                await in_thread(held.end, always=True)
            raise

    def _take(self) -> Held:
        """Whether it is handed over or given back is settled here, in the thread that took it: the event loop may be
        gone by then."""
        held = take(self._caller, **self._arguments)
        with self._settling:
            if not self._given_up:
                self._held = held
                return held
        held.unused()
        held.end()
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self.__exit__, kind, error, trace), always=True)


def hold(caller: Caller, *, on_lost: Callable[[], None] | None = None, **arguments: Any) -> Hold:
    """`admit` with these arguments for a block; refused, the block does not run (see Verdict.error for the errors)."""
    return Hold(caller, {"on_lost": on_lost, **arguments})
