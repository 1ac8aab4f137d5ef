"""By when: hours of work over nights, weekends, holidays and worked Saturdays, and the wall clock for critical ones."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from risk.alerts.deadlines import CLOSES, LIMITS, OPENS, deadlines
from risk.calendar.selectors import WorkCalendar

ZONE = ZoneInfo("Asia/Shanghai")
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE)


# 2026-10-01, a Thursday, to 10-07 is a holiday; Saturday 10-10 is worked in return.
OCTOBER = WorkCalendar({**{date(2026, 10, day): False for day in range(1, 8)}, date(2026, 10, 10): True})


@pytest.mark.parametrize(
    ("score", "opened", "claim", "dispose"),
    [
        # critical: day and night, to the microsecond
        (80, "2026-10-02 23:30:00.000001", "2026-10-03 00:30:00.000001", "2026-10-03 03:30:00.000001"),
        # high: 4 h and 9 h of work
        (79, "2026-10-12 10:00", "2026-10-12 14:00", "2026-10-13 10:00"),
        (60, "2026-10-16 16:00", "2026-10-19 11:00", "2026-10-19 16:00"),  # a Friday: over the weekend
        (60, "2026-10-12 14:00", "2026-10-12 18:00", "2026-10-13 14:00"),  # ends with the day's work
        (60, "2026-10-12 09:00", "2026-10-12 13:00", "2026-10-12 18:00"),
        (60, "2026-10-12 08:59", "2026-10-12 13:00", "2026-10-12 18:00"),  # before work begins
        (60, "2026-10-12 18:00", "2026-10-13 13:00", "2026-10-13 18:00"),  # work is over at 18:00
        (60, "2026-10-12 17:59", "2026-10-13 12:59", "2026-10-13 17:59"),
        # medium: one day and three days
        (59, "2026-10-12 10:00", "2026-10-13 10:00", "2026-10-15 10:00"),
        (40, "2026-09-30 17:00", "2026-10-08 17:00", "2026-10-10 17:00"),  # the holidays, then a worked Saturday
        (40, "2026-10-03 12:00", "2026-10-08 18:00", "2026-10-10 18:00"),  # opened on a holiday
        # low: five days, no claim
        (39, "2026-10-12 10:00", None, "2026-10-19 10:00"),
        (0, "2026-10-10 10:00", None, "2026-10-16 10:00"),  # the worked Saturday counts, the Sunday does not
    ],
)
def test_limits_of_each_band(score: int, opened: str, claim: str | None, dispose: str) -> None:
    found = deadlines(score=score, start=at(opened), calendar=OCTOBER)
    assert (found.claim, found.dispose) == (at(claim) if claim else None, at(dispose))


def test_the_bands_have_the_limits_that_the_house_has_set() -> None:
    hours = {
        name: (limits.claim and limits.claim / timedelta(hours=1), limits.dispose / timedelta(hours=1))
        for name, limits in LIMITS.items()
    }
    assert hours == {"critical": (1, 4), "high": (4, 9), "medium": (9, 27), "low": (None, 45)}


def by_the_minute(calendar: WorkCalendar, start: datetime, minutes: int) -> datetime:
    """Counts every minute of the clock, one after the other."""
    moment = start
    while minutes:
        worked = calendar.exceptions.get(moment.date(), moment.weekday() not in (5, 6))
        if worked and 9 <= moment.hour < 18:
            minutes -= 1
        moment += MINUTE
    return moment


def on(day: date, hour: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=ZONE)


days = st.integers(0, 20).map(lambda n: date(2026, 9, 25) + timedelta(days=n))

edges = st.builds(on, days, st.sampled_from([0, 9, 18]))


@settings(max_examples=120, deadline=None)
@given(
    exceptions=st.dictionaries(days, st.booleans(), max_size=12),
    start=st.integers(0, 12 * 24 * 60).map(lambda n: at("2026-09-25 00:00") + n * MINUTE)
    | st.builds(
        lambda day, hour: datetime(day.year, day.month, day.day, hour, tzinfo=ZONE), days, st.sampled_from([0, 9, 18])
    ),
    minutes=st.sampled_from([1, 60, 239, 240, 540, 541, 1620, 2700]) | st.integers(1, 2700),
)
def test_it_agrees_with_a_count_of_every_minute(exceptions: dict[date, bool], start: datetime, minutes: int) -> None:
    calendar = WorkCalendar(exceptions)
    found = calendar.after_working_time(start, minutes * MINUTE, opens=OPENS, closes=CLOSES)
    assert found == by_the_minute(calendar, start, minutes)
