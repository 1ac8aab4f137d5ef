"""Rates that a busy machine distorts alike: short slices of each work in turn, and the median of each."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

SLICE_SECONDS = 0.25
Slice = Callable[[float], float]  # seconds -> calls a second


def sync_slice(work: Callable[[], Any]) -> Slice:
    """`work`, called again and again in this thread."""

    def run(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        until = began + seconds
        while (at := time.perf_counter()) < until:
            for _ in range(10):
                work()
            count += 10
        return count / (at - began)

    return run


def async_slice(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[Any]]) -> Slice:
    """The same for a coroutine function; the loop runs once a slice, so that starting it costs nothing."""

    async def turn(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        until = began + seconds
        while (at := time.perf_counter()) < until:
            for _ in range(10):
                await work()
            count += 10
        return count / (at - began)

    return lambda seconds: loop.run_until_complete(turn(seconds))


def interleaved(
    works: Mapping[str, Slice], seconds: float, between: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    """Median rate of each, measured for `seconds` each. between: untimed housekeeping after each round."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for run in works.values():
        run(0.02)
    for _ in range(max(3, round(seconds / SLICE_SECONDS))):
        for name, run in works.items():
            found[name].append(run(SLICE_SECONDS))
        between()
    return {name: statistics.median(rates) for name, rates in found.items()}
