"""What the officer looks at, as it stands in the queue's address: the tab, its filters, the columns and the place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from config.base.asked import number
from config.base.clock import business_zone
from risk.alerts.models import AlertStatus, AlertType, DispositionCode, EscalationLevel
from risk.console.sight import Sight
from risk.console.words import RULES, SUBTYPES

CASES = (AlertType.EVENT, AlertType.PATTERN, AlertType.REPORT)


@dataclass(frozen=True)
class Tab:
    label: Promise
    kinds: tuple[AlertType, ...]


# RISK.md 5. A tab holds the kinds of alert it names; which of them, its states say.
TABS: dict[str, Tab] = {
    "customers": Tab(_("Customer alerts"), (AlertType.EVENT,)),
    "conduct": Tab(_("Advisor conduct"), (AlertType.PATTERN,)),
    "reports": Tab(_("Large-amount reports"), (AlertType.REPORT,)),
    "review": Tab(_("Awaiting review"), CASES),
    "quiet": Tab(_("Quiet"), CASES),
    "faults": Tab(_("Data quality"), (AlertType.DATA_QUALITY,)),
}
_OPEN = {status.value: status.label for status in (AlertStatus.PENDING, AlertStatus.IN_REVIEW, AlertStatus.ESCALATED)}
_DONE = {
    status.value: status.label for status in (AlertStatus.CONFIRMED, AlertStatus.FALSE_POSITIVE, AlertStatus.CLOSED)
}
_CASE_STATES: dict[str, Any] = {"": _("open"), **_OPEN, "done": _("disposed of"), **_DONE, "all": _("any state")}
_DISPOSED = ("done", *_DONE)
# Of each tab; the first is what it shows unasked.
STATES: dict[str, dict[str, Any]] = {
    "customers": _CASE_STATES,
    "conduct": _CASE_STATES,
    "reports": _CASE_STATES,
    "review": {"": _("escalated"), "others": _("by others, for me to review"), "own": _("put forward by me")},
    "quiet": {"": _("put aside"), "period": _("quiet period")},
    "faults": {"": _("open"), "done": _("mended")},
}
LEVELS: dict[str, Any] = {"none": _("no level"), "LEVEL_1": EscalationLevel.LEVEL_1.label,
                          "LEVEL_2": EscalationLevel.LEVEL_2.label}  # fmt: skip
# From (older than) and up to (younger than).
AGES: dict[str, tuple[Promise, timedelta | None, timedelta | None]] = {
    "1h": (_("up to 1 hour"), None, timedelta(hours=1)),
    "1d": (_("up to 1 day"), None, timedelta(days=1)),
    "7d": (_("up to 7 days"), None, timedelta(days=7)),
    "1-7d": (_("1 to 7 days"), timedelta(days=1), timedelta(days=7)),
    "7-30d": (_("7 to 30 days"), timedelta(days=7), timedelta(days=30)),
    "1d+": (_("over 1 day"), timedelta(days=1), None),
    "7d+": (_("over 7 days"), timedelta(days=7), None),
    "30d+": (_("over 30 days"), timedelta(days=30), None),
}
DUES: dict[str, Promise] = {
    "overdue": _("overdue"),
    "2h": _("due within 2 hours"),
    "today": _("due today"),
    "later": _("due later"),
}
# Why it is back with its officer.
BACKS: dict[str, Promise] = {"returned": _("returned by a second officer"), "woken": _("back from aside")}
CODES: dict[str, str] = {code.value: f"{code.value} {code.label}" for code in DispositionCode}
# Business days, today among them: how long ago it was disposed of, or opened.
SPANS: dict[str, tuple[Promise, int]] = {
    "today": (_("today"), 1),
    "7d": (_("in 7 days"), 7),
    "30d": (_("in 30 days"), 30),
}
_HOUR = "%Y-%m-%dT%H"  # of business time
ASSIGNEES: dict[str, Promise] = {"me": _("me"), "none": _("unassigned")}
# The subtype is the link to the alert and always there.
COLUMNS: dict[str, Promise] = {
    "due": _("Due"),
    "score": _("Score"),
    "level": _("Level"),
    "sentence": _("Sentence"),
    "customer": _("Customer"),
    "hits": _("Hits"),
    "assignee": _("Assignee"),
    "status": _("Status"),
    "advisor": _("Advisor"),
    "branch": _("Channel"),
    "opened": _("Opened"),
}
DEFAULT_COLUMNS = ("due", "score", "level", "sentence", "customer", "hits", "assignee", "status", "advisor")
MAX_WORDS = 64  # characters of an id
MAX_PAGE = 99_999
# What a saved view does not hold: places, and whatever names a person.
_PASSING = frozenset({"search", "customer", "after", "before", "page"})
_NAMES = {
    "tab": "tab", "state": "state", "level": "level", "rule": "rule", "subtype": "subtype", "low": "min", "high": "max",
    "age": "age", "assignee": "assignee", "customer": "customer", "advisor": "advisor", "due": "due", "search": "q",
    "back": "back", "code": "code", "since": "since", "opened": "opened",
    "after": "after", "before": "before", "page": "page",
}  # fmt: skip


def tabs_of(sight: Sight) -> list[str]:
    """The tabs that hold something for this person, the first of them to start with."""
    return [name for name in TABS if (sight.faults if name == "faults" else sight.cases)]


@dataclass(frozen=True)
class Filters:
    """low, high: of the score, both in. since: when it was disposed of, a span; opened: a span, or an hour of business
    time. after, before: `microseconds~alert id`; before '~': the end. page: the number of the page at `after` or
    `before`; without them the page to go to."""

    tab: str = "customers"
    state: str = ""
    level: str = ""
    rule: str = ""
    subtype: str = ""
    low: int = 0
    high: int = 100
    age: str = ""
    assignee: str = ""
    customer: str = ""
    advisor: str = ""
    due: str = ""
    back: str = ""
    code: str = ""
    since: str = ""
    opened: str = ""
    search: str = ""
    after: str = ""
    before: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str], sight: Sight) -> Filters:
        """From a query string; words it does not know, or that this person has no use for, count as not given."""
        tabs = tabs_of(sight)

        def known(name: str, words: Iterable[str], default: str = "") -> str:
            value = query.get(name, "")
            return value if value in words else default

        def words(name: str, most: int = MAX_WORDS) -> str:
            return query.get(name, "").strip()[:most]

        def figure(name: str, default: int, least: int, most: int) -> int:
            value = query.get(name, "")
            found = number(value) if len(value) <= 6 else None
            return default if found is None else min(max(found, least), most)

        tab = known("tab", tabs, tabs[0])
        cases = tab != "faults"
        state = known("state", STATES[tab])
        done = state in _DISPOSED
        return cls(
            tab=tab,
            state=state,
            level=known("level", LEVELS) if cases else "",
            rule=known("rule", RULES) if cases else "",
            subtype=known("subtype", SUBTYPES),
            low=figure("min", 0, 0, 100) if cases else 0,
            high=figure("max", 100, 0, 100) if cases else 100,
            age=known("age", AGES),
            assignee=words("assignee", 150) if cases else "",
            customer=words("customer") if cases else "",
            advisor=words("advisor") if cases else "",
            due=known("due", DUES) if cases else "",
            back=known("back", BACKS) if cases else "",
            code=known("code", CODES) if done else "",
            since=known("since", SPANS) if done else "",
            opened=_opening(query.get("opened", "")) if cases else "",
            search=words("q"),
            after=query.get("after", "")[:120],
            before=query.get("before", "")[:120],
            page=figure("page", 1, 1, MAX_PAGE),
        )

    @property
    def newest_first(self) -> bool:
        """What is disposed of is sorted by when, the latest first; anything else by due."""
        return self.state in ("all", "period", *_DISPOSED)

    @property
    def disposed(self) -> bool:
        """Whether all that is shown is disposed of, so that when it was is what it is sorted by."""
        return self.newest_first and self.state != "all"

    @property
    def narrowed(self) -> bool:
        """Whether anything but the tab says what is shown."""
        return replace(self, after="", before="", page=1) != Filters(tab=self.tab)

    @property
    def hidden(self) -> int:
        """How many filters are set that the folded part of the form holds."""
        fold = ("level", "subtype", "age", "customer", "advisor", "low", "high", "back", "code", "since", "opened")
        blank = Filters()
        return sum(getattr(self, name) != getattr(blank, name) for name in fold)

    def link(self, **changes: Any) -> str:
        """The address of this view with other words; a change of view starts at its first page."""
        return "?" + self.query(**changes)

    def query(self, **changes: Any) -> str:
        changed = replace(self, **{"after": "", "before": "", "page": 1, **changes})
        blank = Filters(tab="")
        said = {field.name: getattr(changed, field.name) for field in fields(changed)}
        return urlencode({_NAMES[name]: value for name, value in said.items() if value != getattr(blank, name)})

    def kept(self) -> str:
        """What a saved view holds of it: no place, and nobody's id."""
        blank = Filters()
        return self.query(**{name: getattr(blank, name) for name in _PASSING})

    def described(self) -> dict[str, Any]:
        """For the audit record: which filters were set, and no one's id."""
        blank = Filters()
        said: dict[str, Any] = {"tab": self.tab}
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if name in ("after", "before", "page", "tab") or value == getattr(blank, name):
                continue
            said[_NAMES[name]] = "given" if name in ("search", "customer") else value
        return said


def _opening(words: str) -> str:
    """A span of SPANS, or an hour: `2026-11-30T09`."""
    return words if words in SPANS or hour_of(words) else ""


def hour_of(words: str) -> datetime | None:
    """When the hour began that `2026-11-30T09` names, in business time."""
    try:
        found = datetime.strptime(words, _HOUR) if len(words) == 13 else None
    except ValueError:
        return None
    return found.replace(tzinfo=business_zone()) if found else None


def hour_words(begins: datetime) -> str:
    return begins.astimezone(business_zone()).strftime(_HOUR)


def columns_of(words: str) -> tuple[str, ...]:
    """`due,score` in the order of COLUMNS; none that is known: the default."""
    named = set(words.split(","))
    return tuple(name for name in COLUMNS if name in named) or DEFAULT_COLUMNS
