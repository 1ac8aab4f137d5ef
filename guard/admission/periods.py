"""Business periods around the Redis server's time.

Which period it is decides the script, by the server's clock. Callers pass two neighbours, the one they take for the
present and the one nearest to it; how far their own clock is off they learn from each answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as midnight
from functools import lru_cache
from zoneinfo import ZoneInfo

from django.conf import settings

MINUTE_MS = 60_000
_DRIFT = 0.0005  # more than clocks of machines run apart


class ServerClock:
    """The server's time as far as this process knows it. Counted on by the monotonic clock, so that setting this
    machine's clock changes nothing; wrong at first by as much as that clock is."""

    def __init__(self) -> None:
        self._base_ms = 0.0
        self._learned_at = 0.0

    def now_ms(self) -> int:
        if not self._base_ms:
            return int(time.time() * 1000)
        return int(self._base_ms + time.monotonic() * 1000)

    def learn(self, now_ms: int) -> None:
        """An answer says when it was made, and is read a little later, on a busy machine much later: of all answers the
        one that took least is nearest. It gives way by as much as two clocks drift apart, and at once where the
        server's was set."""
        at = time.monotonic() * 1000
        behind = self._base_ms - (now_ms - at)
        drifted = (at - self._learned_at) * _DRIFT
        self._base_ms = self._base_ms - min(behind, drifted) if 0 < behind < 1000 else now_ms - at
        self._learned_at = at

    def deadline_ms(self, wait_ms: int) -> int:
        """So many ms from now by the server's clock; 0 while that is not known."""
        return int(self._base_ms + time.monotonic() * 1000) + wait_ms if self._base_ms else 0

    def forget(self) -> None:
        self._base_ms = 0.0


clock = ServerClock()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbouring periods. names: of each. bounds: ms at which the first begins, the second, and that ends.
    until_ms: from here on another pair is nearer."""

    names: tuple[str, str]
    bounds: tuple[int, int, int]
    until_ms: int


def _pair(starts: list[int], names: list[str], now_ms: int) -> Pair:
    """Of previous, this, next and the one after that: this one, and whichever neighbour is nearer."""
    begin, end = starts[1], starts[2]
    middle = (begin + end) // 2
    first = 0 if now_ms < middle else 1
    return Pair(
        (names[first], names[first + 1]),
        (starts[first], starts[first + 1], starts[first + 2]),
        middle if first == 0 else end,
    )


def _ms(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, midnight(), tzinfo=zone).timestamp()) * 1000


@lru_cache(maxsize=64)
def _days(day: date, zone_name: str) -> tuple[list[int], list[str]]:
    zone = ZoneInfo(zone_name)
    days = [day + timedelta(days=n) for n in (-1, 0, 1, 2)]
    return [_ms(one, zone) for one in days], [one.isoformat() for one in days]


@lru_cache(maxsize=64)
def _months(year: int, month: int, zone_name: str) -> tuple[list[int], list[str]]:
    zone = ZoneInfo(zone_name)
    firsts = [date(year + (month - 1 + n) // 12, (month - 1 + n) % 12 + 1, 1) for n in (-1, 0, 1, 2)]
    return [_ms(one, zone) for one in firsts], [f"{one:%Y-%m}" for one in firsts]


def _local(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(ZoneInfo(settings.BUSINESS_TIME_ZONE)).date()


def days_around(now_ms: int) -> Pair:
    """Two business days, as YYYY-MM-DD."""
    return _pair(*_days(_local(now_ms), settings.BUSINESS_TIME_ZONE), now_ms)


def months_around(now_ms: int) -> Pair:
    """Two calendar months of the business time zone, as YYYY-MM."""
    day = _local(now_ms)
    return _pair(*_months(day.year, day.month, settings.BUSINESS_TIME_ZONE), now_ms)


def minutes_around(now_ms: int) -> Pair:
    """Two minutes, counted from 1970."""
    begin = now_ms // MINUTE_MS
    return _pair([(begin + n) * MINUTE_MS for n in (-1, 0, 1, 2)], [str(begin + n) for n in (-1, 0, 1, 2)], now_ms)


def month_of(day: date) -> str:
    return f"{day:%Y-%m}"


def day_at(days: Pair, at_ms: int) -> str:
    """Which of two days it is."""
    return days.names[0 if at_ms < days.bounds[1] else 1]
