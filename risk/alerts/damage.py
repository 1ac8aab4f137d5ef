"""Stored rows of alerts and their findings that cannot be read: whoever wrote there, each concerns its own alert alone.

Lists show the rest and mark the damaged one; the scanner judges everybody but the customer whose findings it would have
to compare, and counts that one as failed. Nothing here mends: the row stays as it is until somebody writes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import CharField, F, Func, IntegerField, Q
from django.db.models.functions import Left, Right

from config.base.errors import DomainError
from config.base.fields import Damaged
from risk.alerts.models import AlertStatus, AlertType, EscalationLevel, HitState, RiskAlert, RiskAlertHit

_TEXTS = {RiskAlert: ("subtypes", "rule_ids", "payload"), RiskAlertHit: ("subtypes", "figures")}
_STATES: dict[type, dict[str, frozenset[str]]] = {
    RiskAlert: {
        "status": frozenset(AlertStatus.values),
        "alert_type": frozenset(AlertType.values),
        "escalation_level": frozenset(EscalationLevel.values),
    },
    RiskAlertHit: {"state": frozenset(HitState.values)},
}


def damaged_columns(row: RiskAlert | RiskAlertHit) -> list[str]:
    """Of those that were read: the columns whose value cannot be read, or is none that there can be. No query."""
    read, kind = row.__dict__, type(row)
    found = [name for name in _TEXTS[kind] if isinstance(read.get(name), Damaged)]
    return found + [name for name, values in _STATES[kind].items() if name in read and read[name] not in values]


def is_damaged(row: RiskAlert | RiskAlertHit) -> bool:
    return bool(damaged_columns(row))


def refuse_damaged(row: RiskAlert | RiskAlertHit) -> None:
    """For whoever would decide by it, or change it. A hit that was superseded or withdrawn decides nothing.

    Errors: ALERT_DAMAGED.
    """
    if isinstance(row, RiskAlertHit) and row.state != HitState.LIVE and row.state in _STATES[RiskAlertHit]["state"]:
        return
    columns = damaged_columns(row)
    if columns:
        what = "finding" if isinstance(row, RiskAlertHit) else "alert"
        raise DomainError("ALERT_DAMAGED", f"a stored {what} cannot be read: {', '.join(columns)}")


# --- the look at all of them ------------------------------------------------------------------------------------------

WINDOW = 20_000  # rows that one query looks through
FIRST_SECONDS = 0.6  # the first look of a process, doctor's too: some hundred thousand rows
SECONDS = 0.05  # each later one goes on where the last ended: a window at least
TOLD = 5
# How a sound value begins and ends in its canonical spelling.
_SIGNS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "texts": (("[]", '["'), ("[]", '"]')),
    "object": (("{}", '{"'), ()),
}


@dataclass(frozen=True)
class DamagedRow:
    """table and pk: where to mend it. customer_id or advisor_id are nobody's business here."""

    table: str
    pk: Any
    columns: tuple[str, ...]


class _Look:
    """One table, the newest rows first, a window after the other, round and round. What was found is looked at again
    each time, so that a row that was mended is no longer told of."""

    def __init__(self, model: type[RiskAlert] | type[RiskAlertHit]) -> None:
        self._model = model
        self._before: Any = None
        self._known: set[Any] = set()
        self._began = False
        self._lock = threading.Lock()

    def found(self) -> list[DamagedRow]:
        with self._lock:
            deadline = time.monotonic() + (SECONDS if self._began else FIRST_SECONDS)
            self._began = True
            while self._window() and time.monotonic() < deadline:
                pass
            found = [
                DamagedRow(self._model._meta.db_table, row.pk, tuple(columns))
                for row in self._model.objects.filter(pk__in=self._known).order_by("pk")
                if (columns := damaged_columns(row))
            ]
            self._known = {row.pk for row in found}
            return found

    def _window(self) -> bool:
        """Whether there are older rows. Two queries."""
        rows: Any = self._model._default_manager.order_by("-pk")
        if self._before is not None:
            rows = rows.filter(pk__lt=self._before)
        last = rows.values_list("pk", flat=True)[WINDOW - 1 : WINDOW].first()
        if last is not None:
            rows = rows.filter(pk__gte=last)
        self._known.update(_suspects(rows).order_by().values_list("pk", flat=True))
        self._before = last
        return last is not None


def _suspects(rows: Any) -> Any:
    """Those that may be damaged, told by the database: `damaged_columns` has the last word."""
    model = rows.model
    wrong = Q()
    for name in _TEXTS[model]:
        begins, ends = _SIGNS["object" if name in ("figures", "payload") else "texts"]
        rows = rows.annotate(**{
            f"_{name}_valid": Func(F(name), function="JSON_VALID", output_field=IntegerField()),
            f"_{name}_first": Left(name, 2, output_field=CharField()),
            f"_{name}_last": Right(name, 2, output_field=CharField()),
        })  # fmt: skip
        wrong |= Q(**{f"_{name}_valid": 0}) | ~Q(**{f"_{name}_first__in": begins})
        if ends:
            wrong |= ~Q(**{f"_{name}_last__in": ends})
    for name, values in _STATES[model].items():
        wrong |= ~Q(**{f"{name}__in": sorted(values)})
    return rows.filter(wrong)


_looks: Sequence[_Look] = (_Look(RiskAlert), _Look(RiskAlertHit))


def damaged_rows() -> list[DamagedRow]:
    """Of all tenants: what this process has come upon so far. 3 queries a table at least, of WINDOW rows each; the
    first call of a process reads on for FIRST_SECONDS a table, so it has seen them all where there are not very many.
    """
    return [row for look in _looks for row in look.found()]
