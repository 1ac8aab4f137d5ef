"""What happened to numbers that no message has, written down where it happens: off the hot path, in transactions that
are there anyway. `reconcile` reads it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Case, PositiveBigIntegerField, Value, When

from config.base.clock import now
from config.base.db import retry_conflicts
from memory.sessions.entries import Entry
from memory.sessions.models import AgentSession, SessionNumbering

Kind = SessionNumbering.Kind

_REMEMBERED = 20_000
_ROWS_A_QUERY = 200


class _Given:
    """Per process: the highest number of each session that this process answered with. After Redis was emptied it is
    the only trace of a number whose message is gone; it costs an append one dictionary entry."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    def note(self, pk: int, seq: int) -> None:
        if seq > self._highest.get(pk, 0):
            if len(self._highest) >= _REMEMBERED:
                self._highest.clear()
            self._highest[pk] = seq

    def highest(self, pk: int) -> int:
        return self._highest.get(pk, 0)

    def forget(self) -> None:
        self._highest.clear()


given = _Given()


def new_epoch() -> str:
    """A name for a Redis that has none: when it was found without one (s since 1970, hex), and chance."""
    return f"{int(time.time()):x}-{secrets.token_hex(6)}"


def epoch_began(epoch: str) -> datetime | None:
    """When a Redis was found empty; None for names that do not say."""
    head, dash, _ = epoch.partition("-")
    try:
        return datetime.fromtimestamp(int(head, 16), UTC) if dash else None
    except (ValueError, OverflowError):
        return None


def fate_of_lease(row: AgentSession, epoch: str, run_id: str) -> str:
    """Why numbering does not go on in the range that the row names, seen from the Redis `epoch`, `run_id`.

    `idle` where the session's state in the former Redis had ended by age before this one began: then nothing of it
    can have been queued there.
    """
    origin = f"{epoch}.{run_id}"[:64]
    if row.lease_epoch == origin:
        return Kind.OUTAGE
    if epoch and row.lease_epoch.rpartition(".")[0] == epoch:
        return Kind.RESTARTED
    began = epoch_began(epoch) or now()
    if row.opened_at is not None and row.opened_at + timedelta(seconds=settings.SESSION_MAX_AGE_SECONDS) < began:
        return Kind.IDLE
    return Kind.EMPTIED


def note_given_up(row: AgentSession, origin: str, *known: int) -> None:
    """The row's range will not be used any further. In the transaction that leases the next one; 1 query.

    known: numbers that are known to have been given; those outside the range say nothing.
    """
    if row.lease_to < row.lease_from:
        return  # there is none, or all of it is known to have been given
    epoch, _, run_id = origin.rpartition(".")
    SessionNumbering.objects.create(
        session_row_id=row.pk,
        kind=fate_of_lease(row, epoch, run_id),
        first=row.lease_from,
        last=row.lease_to,
        used_to=max((seq for seq in known if row.lease_from <= seq <= row.lease_to), default=0),
    )


def remember_given(seen: Sequence[tuple[AgentSession, int]]) -> None:
    """Numbers that somebody has seen given leave the ranges of their sessions: what is in no range was given to a
    message, so it is missed when its row goes, also when Redis no longer knows of it.

    seen: rows, and the highest number of each row's range that is known to be given (0: none). Harmless beside
    traffic: Redis's numbers only rise, and another range begins above this one. 1 query for each 200 that changed.
    """
    changed = {row.pk: number + 1 for row, number in seen if number >= row.lease_from}
    pks = sorted(changed)
    for start in range(0, len(pks), _ROWS_A_QUERY):
        part = pks[start : start + _ROWS_A_QUERY]
        cases = [When(pk=pk, then=Value(changed[pk])) for pk in part]
        begins = Case(*cases, default=Value(0), output_field=PositiveBigIntegerField())
        rows = AgentSession.objects.filter(pk__in=part, lease_from__lt=begins)
        retry_conflicts(lambda: rows.update(lease_from=begins))  # noqa: B023 - runs at once


def note_repeats(repeats: Sequence[tuple[Entry, int]]) -> None:
    """Entries that MySQL has under another number than the stream: theirs stay without a message."""
    if not repeats:
        return
    with transaction.atomic():
        for entry, number in repeats:
            SessionNumbering.objects.get_or_create(
                session_row_id=entry.session_pk,
                kind=Kind.REPEAT,
                first=entry.seq,
                defaults={"last": entry.seq, "used_to": entry.seq, "note": f"{entry.entry_id} is number {number}"},
            )
