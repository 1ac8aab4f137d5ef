"""A restriction needs a confirmed alert. Risk, which knows the alerts, is asked; this room may not know risk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from config.base.clock import business_day_bounds

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Confirmed:
    """What a customer's confirmed alerts allow. there: there is one, so risk may keep a restriction. told: one of them
    may be told of, so others than risk may see it: one for RISK-003 or RISK-004 alone would tip off."""

    there: bool = False
    told: bool = False


ConfirmedAlertResolver = Callable[[str, str], Confirmed]
_resolver: ConfirmedAlertResolver | None = None


def register_confirmed_alert_resolver(resolver: ConfirmedAlertResolver) -> None:
    """Told at ready() by the room that knows: (tenant, customer_id) -> what the customer's confirmed alerts allow."""
    global _resolver
    _resolver = resolver


def unfounded(*, tenant: str, customer_id: str, new: Iterable[tuple[int, Entry]]) -> dict[int, str]:
    """Of restrictions that are added, by their place: those that may not be, with the reason.

    Nobody to ask means no (closed). Costs what the resolver costs: one SQL.
    """
    found = _resolver(tenant, customer_id) if _resolver is not None else Confirmed()
    if not found.there:
        return {place: "is new, and the customer has no confirmed alert" for place, _entry in new}
    if found.told:
        return {}
    return {
        place: "is new, and no confirmed alert of the customer may be told of: make it visibility risk"
        for place, entry in new
        if entry.get("visibility", "risk") != "risk"
    }


def added(before: Iterable[Entry], after: Iterable[Entry], moment: datetime) -> list[int]:
    """Places in `after` of restrictions that bind more than `before` did at `moment`.

    That is: a code, value and visibility that was not there, or one that would last longer or begin earlier than it
    did. Kept, reworded, ended and removed restrictions add nothing.
    """
    there = list(before)
    return [place for place, entry in enumerate(after) if not any(_covers(old, entry, moment) for old in there)]


def _covers(old: Entry, new: Entry, moment: datetime) -> bool:
    if _what(old) != _what(new) or _end(new) > _end(old):
        return False
    # Of one that has begun, the day it began on is a remark: it binds no more for an earlier one.
    return _start(old) <= moment or _start(new) >= _start(old)


def _what(entry: Entry) -> tuple[Any, ...]:
    return entry.get("code"), entry.get("value"), entry.get("visibility", "risk")


def _start(entry: Entry) -> datetime:
    since = entry.get("since")
    return _bounds(since)[0] if since else datetime.min.replace(tzinfo=UTC)


def _end(entry: Entry) -> datetime:
    """The first instant at which it does not count any more."""
    until = entry.get("until")
    return _bounds(until)[1] if until else datetime.max.replace(tzinfo=UTC)


def _bounds(said: str) -> tuple[datetime, datetime]:
    if len(said) == 10:
        return business_day_bounds(date.fromisoformat(said))
    instant = datetime.fromisoformat(said)
    return instant, instant
