"""Which days are worked: Monday to Friday, and what the table of holidays says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from config.base.clock import business_zone
from risk.calendar.models import Holiday

_SATURDAY = 5


@dataclass(frozen=True)
class WorkCalendar:
    """Pure: no clock, no database. exceptions: day -> whether it is worked, whatever its weekday."""

    exceptions: Mapping[date, bool] = field(default_factory=dict)

    def is_working_day(self, day: date) -> bool:
        """Whether the business day is worked."""
        return self.exceptions.get(day, day.weekday() < _SATURDAY)

    def is_working_time(self, moment: datetime, *, opens: time, closes: time) -> bool:
        """Whether an instant lies in `[opens, closes)` of a working day, in the business time zone."""
        local = moment.astimezone(business_zone())
        return self.is_working_day(local.date()) and opens <= local.time() < closes

    def after_working_time(self, start: datetime, duration: timedelta, *, opens: time, closes: time) -> datetime:
        """The first instant by which `duration` of working time has passed since `start`; UTC.

        Working time is `[opens, closes)` of working days in the business time zone. What ends with a day's work ends
        at `closes` of that day, not at `opens` of the next. Cost: one step a day.
        """
        day, left = start.astimezone(business_zone()).date(), duration
        at = start.astimezone(UTC)
        while True:
            if self.is_working_day(day):
                begin = max(at, datetime.combine(day, opens, tzinfo=business_zone()).astimezone(UTC))
                end = datetime.combine(day, closes, tzinfo=business_zone()).astimezone(UTC)
                if begin < end:
                    if left <= end - begin:
                        return begin + left
                    left -= end - begin
            day += timedelta(days=1)


def work_calendar(*, tenant: str) -> WorkCalendar:
    """The tenant's calendar as it now stands. One query; a dozen rows a year."""
    rows = Holiday.objects.filter(tenant=tenant).order_by().values_list("day", "kind")
    return WorkCalendar({day: kind == Holiday.Kind.WORKDAY for day, kind in rows})
