"""Sessions that have been erased: every way to them ends here.

The row of an erased session stays, without a person, and refuses. Who writes messages without locking that row (the
drain, a committing append, dead letters) writes first, then looks here, then commits: `memory.erasure.tombstones` says
why that lets no late writer through.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import DatabaseError

from config.base.errors import DomainError
from memory.erasure.tombstones import customer_erased
from memory.sessions.entries import Entry
from memory.sessions.models import AgentSession


def refuse_gone(row: AgentSession | None) -> AgentSession:
    """The row itself while the session lives. Errors: SESSION_NOT_FOUND, CUSTOMER_ERASED, SESSION_DELETED."""
    if row is None:
        raise DomainError("SESSION_NOT_FOUND")
    if row.erased_at is not None:
        raise customer_erased()
    if row.deleted_at is not None:
        raise DomainError("SESSION_DELETED")
    return row


def deleted(pk: int) -> DomainError:
    """The error for a session that Redis calls deleted: its mark there does not say why. 1 query, on this way only."""
    try:
        erased = AgentSession.objects.filter(pk=pk, erased_at__isnull=False).exists()
    except DatabaseError:
        erased = False
    return customer_erased() if erased else DomainError("SESSION_DELETED")


class Strays(Exception):
    """Ends a transaction that must not commit: it wrote into sessions that are erased or do not exist."""


def by_session(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """The entries whose session is there, those whose session is erased, and the rest. 1 query."""
    pks = {entry.session_pk for entry in entries}
    rows = AgentSession.objects.filter(pk__in=pks).values_list("pk", "session_id", "erased_at")
    sessions = {(pk, session_id): erased_at for pk, session_id, erased_at in rows}
    there: list[Entry] = []
    erased: list[Entry] = []
    unknown: list[Entry] = []
    for entry in entries:
        key = (entry.session_pk, entry.session_id)
        (unknown if key not in sessions else erased if sessions[key] is not None else there).append(entry)
    return there, erased, unknown


def refuse_strays(entries: Sequence[Entry]) -> None:
    """After writing these entries, before the commit. 1 query. Errors: Strays."""
    _, erased, unknown = by_session(entries)
    if erased or unknown:
        raise Strays


def is_erased(tenant: str, session_id: str) -> bool:
    """1 query."""
    return AgentSession.objects.filter(tenant=tenant, session_id=session_id, erased_at__isnull=False).exists()


def blank(pks: Sequence[int]) -> int:
    """Takes the persons out of rows of erased sessions; returns how many. 1 query."""
    rows = AgentSession.objects.filter(pk__in=pks, erased_at__isnull=False)
    return rows.update(actor_id="", customer_id="", lineage=None, forked_from="")
