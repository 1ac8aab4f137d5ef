"""The registry of what each table holds and for how long. A room says it of its tables in its `retention.py`.

`manage.py prune` removes what is over (config/pruning.py) and writes docs/retention.md from here
(config/retention_registry.py). A table that no room speaks of is a failed test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import models

M = TypeVar("M", bound=models.Model)

TWENTY_YEARS = 7305  # days, with five leap days
# In short; config/retention_registry.py has them in full, for the document.
SECURITIES_LAW = "Securities Law art. 137: 20 years"
SUITABILITY = "Suitability Measures art. 32: 20 years"
AML = "Anti-Money-Laundering Law art. 34: 10 years"
NO_LONGER = "PIPL art. 19: no longer than needed"

# Tenant and customer; customer '' where a row is nobody's in particular.
Person = tuple[str, str]


@dataclass(frozen=True)
class Rows:
    """How rows that are over are found and removed. Callables get the cut-off: what lies before it is over.

    due: those rows, as a query on the model alone (other tables by EXISTS), asked without a lock first and once more
        under it, so it must hold whatever happens in between.
    grows_with: a column of `due` that grows with the primary key. The walk, in the order of that key, ends where
        nothing is older any more; without one it goes through the whole table, a window at a time.
    remove: the rows of these keys, which are locked, in the caller's transaction; returns how many rows of which table
        went. Where some are still due after it, it is called again in the next transaction: a big removal in steps.
    people: whose the rows are. With it legal holds are asked, under the lock that placing one takes, and the
        removal is on the audit record.
    held: which of the rows the holds in force stand against, where `people` alone does not tell.
    spare: which are needed all the same; asked before every removal.
    find: batches of keys, in place of the walk. again: walk until nothing more goes, for rows that hold others back.
    wait: wait for a locked row instead of leaving it to the next run.
    """

    model: type[models.Model]
    due: Callable[[datetime], models.QuerySet[Any]]
    grows_with: str = ""
    remove: Callable[[Sequence[Any], datetime], Mapping[str, int]] | None = None
    people: Callable[[Sequence[Any]], Mapping[Any, Collection[Person]]] | None = None
    held: Callable[[Sequence[Any], Collection[Person]], Collection[Any]] | None = None
    spare: Callable[[Sequence[Any], datetime], Collection[Any]] | None = None
    find: Callable[[datetime, str | None, int], Iterator[list[Any]]] | None = None
    again: bool = False
    wait: bool = False

    @property
    def has_tenant(self) -> bool:
        return any(field.name == "tenant" for field in self.model._meta.fields)


@dataclass(frozen=True)
class Retention:
    """What is kept of a table, from when, for how long, and on what ground.

    days: the default, changed by RETENTION (see settings.py); None: not by age, `until` says what ends it.
    floor: fewer days than the law allows are refused at start. since: the moment that days count from.
    part: names the rows where a table has several rules. held_back: what keeps a row longer than its days.
    setting: the setting that days come from where it is another one. sweep: removes up to so many rows and says how
        many, where the room has a removal of its own.
    """

    table: str
    holds: str
    why: str
    days: int | None = None
    since: str = ""
    until: str = ""
    floor: int = 1
    part: str = ""
    held_back: str = ""
    setting: str = ""
    rows: Rows | None = None
    sweep: Callable[..., int] | None = None

    @property
    def name(self) -> str:
        """As RETENTION and `--table` name it."""
        return f"{self.table}.{self.part}" if self.part else self.table

    @property
    def period(self) -> int | None:
        """Days in force."""
        if self.setting:
            return int(getattr(settings, self.setting))
        return int(settings.RETENTION.get(self.name, self.days)) if self.days is not None else None

    @property
    def prunable(self) -> bool:
        return self.rows is not None or self.sweep is not None

    def cutoff(self, at: datetime) -> datetime:
        """What lies before this instant is over at `at`."""
        return at - timedelta(days=self.period or 0)


_registry: dict[str, Retention] = {}


def of_customer(
    model: type[models.Model], column: str = "customer_id"
) -> Callable[[Sequence[Any]], dict[Any, list[Person]]]:
    """`people` of a table whose rows name tenant and customer (column '': nobody). 1 query a batch."""

    def people(keys: Sequence[Any]) -> dict[Any, list[Person]]:
        rows = model._base_manager.filter(pk__in=keys).values_list("pk", "tenant", *([column] if column else []))
        return {pk: [(tenant, customer[0] if customer else "")] for pk, tenant, *customer in rows}

    return people


def register(*rules: Retention) -> None:
    """Errors: ValueError: a name twice, or rows to remove and nothing that says when."""
    for rule in rules:
        if _registry.get(rule.name, rule) != rule:
            raise ValueError(f"what is kept of {rule.name!r} is said twice")
        if (rule.days is None and not rule.setting and not rule.until) or (rule.rows and rule.days is None):
            raise ValueError(f"how long {rule.name!r} is kept is not said")
        _registry[rule.name] = rule


def kept(model: type[models.Model], holds: str, why: str, *, until: str = "for good") -> Retention:
    """A table that is not pruned by age."""
    return Retention(model._meta.db_table, holds, why, until=until)


def along(model: type[models.Model], holds: str, other: str) -> Retention:
    """A table whose rows go with those of another one."""
    return Retention(model._meta.db_table, holds, f"part of `{other}`", until=f"goes with its row of `{other}`")


def passing(model: type[models.Model], holds: str, until: str) -> Retention:
    """A table of work to do: whoever does it removes the row."""
    return Retention(model._meta.db_table, holds, "work that is waiting, of whatever age", until=f"until {until}")


def registered() -> list[Retention]:
    """Every rule, by name."""
    return [_registry[name] for name in sorted(_registry)]


def faults(periods: Mapping[str, int]) -> list[str]:
    """What of the setting RETENTION cannot be, a sentence each."""
    said = []
    for name, days in periods.items():
        rule = _registry.get(name)
        if rule is None or rule.days is None:
            changeable = ", ".join(rule.name for rule in registered() if rule.days is not None)
            said.append(f"RETENTION: {name!r} has no period to set; these have one: {changeable}")
        elif days < rule.floor:
            said.append(f"RETENTION: {name}={days} is less than the {rule.floor} days that must be kept: {rule.why}")
    return said
