"""What follows from a profile and the present day. Computed at each read: a cached copy cannot hold it past its day."""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Literal

from config.base.clock import business_date

AssessmentStatus = Literal["valid", "expiring", "expired", "missing"]

ASSESSMENT_MONTHS = 12  # 证券期货投资者适当性管理办法 leaves it to the firm; RISK-001 counts 12 calendar months
EXPIRING_DAYS = 30
ELDERLY_AGE = 65  # RISK-007


def add_months(day: date, months: int) -> date:
    """The same day of a later month, or that month's last day: 29 Feb + 12 months is 28 Feb."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def valid_until(assessed_at: datetime) -> date:
    """The last business day-date on which an assessment counts: assessed 2025-11-30, through 2026-11-30."""
    return add_months(business_date(assessed_at), ASSESSMENT_MONTHS)


def assessment_status(l1: Mapping[str, Any], today: date) -> AssessmentStatus:
    """Of an l1 document (ISO days), as of `today` in the business time zone."""
    until = l1.get("valid_until")
    if not l1.get("c_level") or not until:
        return "missing"
    last = date.fromisoformat(until)
    if today > last:
        return "expired"
    return "expiring" if last - today <= timedelta(days=EXPIRING_DAYS) else "valid"


def age_on(birth_date: date, today: date) -> int:
    """Whole years; an age is reached on the birthday, born on 29 Feb: on 1 Mar of other years."""
    return today.year - birth_date.year - ((today.month, today.day) < (birth_date.month, birth_date.day))


def is_elderly(l1: Mapping[str, Any], today: date) -> bool | None:
    """65 or older; None where the birth date is not known."""
    born = l1.get("birth_date")
    return None if not born else age_on(date.fromisoformat(born), today) >= ELDERLY_AGE


def is_active(entry: Mapping[str, Any], moment: datetime) -> bool:
    """Whether a flag or restriction counts at `moment`: days count whole, an instant `until` is the first after."""
    return not _before(moment, entry.get("since")) and not _past(moment, entry.get("until"))


def _before(moment: datetime, since: str | None) -> bool:
    if since is None:
        return False
    if len(since) == 10:
        return business_date(moment) < date.fromisoformat(since)
    return moment < datetime.fromisoformat(since)


def _past(moment: datetime, until: str | None) -> bool:
    if until is None:
        return False
    if len(until) == 10:
        return business_date(moment) > date.fromisoformat(until)
    return moment >= datetime.fromisoformat(until)


def max_product_risk_level(
    l1: Mapping[str, Any], status: AssessmentStatus, restrictions: Iterable[Mapping[str, Any]]
) -> str | None:
    """The highest product level that suits, `R1` to `R5`; None where none does before a new assessment.

    A professional investor is exempt from matching (RISK-001). Only the restrictions given here lower it: the
    customer's part gives the public ones, for a lower level would tell of a hidden one.
    """
    if l1.get("investor_type") == "professional":
        level = 5
    elif status in ("missing", "expired"):
        return None
    else:
        level = 1 if l1.get("is_lowest") else int(l1["c_level"][1])
    ceilings = [int(entry["value"][1]) for entry in restrictions if entry["code"] == "max_risk_level"]
    return f"R{min([level, *ceilings])}"


def required_steps(status: AssessmentStatus, restrictions: Iterable[Mapping[str, Any]]) -> list[str]:
    """What must be done before a purchase, in this order: reassess, dual_recording, callback."""
    codes = {entry["code"] for entry in restrictions}
    steps = ["reassess"] if status in ("missing", "expired") else []
    if "dual_recording_required" in codes:
        steps.append("dual_recording")
    if "callback_required" in codes:
        steps.append("callback")
    return steps
