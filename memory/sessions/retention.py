"""How long conversations are kept, and how one that is over goes.

It goes as an erased one does (erasing.py): its row is marked first, so that nobody writes there any more; then go its
messages, a transaction each some hundred or 32 MiB; then what is left, and last the persons in the row. The row stays:
its id is never used again. A session whose messages a fork shares waits for the fork.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from config.base.clock import now
from config.base.removal import delete_by_key
from config.base.retention import (
    NO_LONGER,
    SECURITIES_LAW,
    SUITABILITY,
    TWENTY_YEARS,
    Person,
    Retention,
    Rows,
    along,
    register,
)
from guard.admission.models import Fence
from memory.sessions import gone
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionBranch, SessionNumbering

STEP_ROWS = 1000
STEP_BYTES = 32 * 1024 * 1024


def due(before: datetime) -> QuerySet[AgentSession]:
    """Nothing happened in it since; or marked, and not gone on with. Of a later message MySQL is asked per session."""
    said = AgentMessage.objects.filter(session_row_id=OuterRef("pk"), created_at__gte=before)
    quiet = Q(erased_at=None) & (Q(deleted_at=None) | Q(deleted_at__lt=before)) & Q(detached_at=None)
    begun = Q(erased_at__isnull=False) & ~Q(actor_id="")
    rows = AgentSession.objects.filter(quiet | begun, created_at__lt=before)
    return rows.filter(Q(opened_at=None) | Q(opened_at__lt=before)).exclude(Exists(said))


def people(pks: Sequence[int]) -> dict[int, list[Person]]:
    """1 query a batch. Of a session without a customer: nobody of the tenant."""
    rows = AgentSession.objects.filter(pk__in=pks).only("tenant", "agent", "actor_id", "customer_id")
    return {row.pk: [(row.tenant, person) for person in row.persons] or [(row.tenant, "")] for row in rows}


def shared(pks: Sequence[int], before: datetime) -> Collection[int]:
    """Those whose messages a fork that is not gone shares. Reads the lineages of the tenants' forks, which are few.

    Their rows are locked first: whoever forks holds that lock too, so a fork under way is waited for and seen.
    """
    rows = AgentSession.objects.filter(pk__in=pks).order_by("pk").select_for_update()
    tenants = set(rows.values_list("tenant", flat=True))
    forks = AgentSession.objects.filter(tenant__in=tenants, lineage__isnull=False).exclude(actor_id="").order_by()
    wanted = set(pks)
    return {of for lineage in forks.values_list("lineage", flat=True) for of, _seq in lineage or () if of in wanted}


def remove(pks: Sequence[int], before: datetime) -> Mapping[str, int]:
    """One step: marks all of them, removes messages session by session until the step is full, then the rest of those
    that have none left. About 12 queries, however many sessions."""
    at = now()
    counts: Counter[str] = Counter()
    unmarked = AgentSession.objects.filter(pk__in=pks, erased_at=None)
    # detached_at: should Redis have anything of it yet, whichever process next catches up closes it there.
    unmarked.update(erased_at=at, deleted_at=Coalesce(F("deleted_at"), at), detached_at=at)
    messages = AgentMessage.objects.filter(session_row_id__in=pks).order_by("session_row_id", "seq").select_for_update()
    found: list[int] = []
    size = 0
    unfinished: int | None = None  # the session where the step ended; those after it have not begun
    for pk, of, bytes_ in messages.values_list("pk", "session_row_id", "size")[: STEP_ROWS + 1]:
        if len(found) == STEP_ROWS or size >= STEP_BYTES:
            unfinished = of
            break
        found.append(pk)
        size += bytes_
    counts["agent_message"] = delete_by_key(AgentMessage, found)
    if finished := [pk for pk in pks if unfinished is None or pk < unfinished]:
        _remove_rest(finished, counts)
    return +counts


def _remove_rest(pks: Sequence[int], counts: Counter[str]) -> None:
    rows = list(AgentSession.objects.filter(pk__in=pks).values_list("tenant", "session_id"))
    mine: list[QuerySet[Any]] = [
        SessionBranch.objects.filter(session_row_id__in=pks),
        SessionNumbering.objects.filter(session_row_id__in=pks),
    ]
    for tenant in {tenant for tenant, _session in rows}:
        names = [session for of, session in rows if of == tenant]
        mine.append(MessageDeadLetter.objects.filter(tenant=tenant, session_id__in=names))
        mine.append(Fence.objects.filter(tenant=tenant, session_id__in=names))
    for wanted in mine:
        counts[wanted.model._meta.db_table] += delete_by_key(wanted.model, list(wanted.values_list("pk", flat=True)))
    gone.blank(pks)


def letters_due(before: datetime) -> QuerySet[MessageDeadLetter]:
    return MessageDeadLetter.objects.exclude(settled="").filter(settled_at__lt=before)


def of_letters(pks: Sequence[int]) -> dict[int, list[Person]]:
    """Those of the letter's session. 2 queries a batch, 1 more for each tenant."""
    letters = list(MessageDeadLetter.objects.filter(pk__in=pks).values_list("pk", "tenant", "session_id"))
    persons: dict[tuple[str, str], list[Person]] = {}
    for tenant in {tenant for _pk, tenant, _session in letters}:
        named = [session for _pk, of, session in letters if of == tenant]
        for row in AgentSession.objects.filter(tenant=tenant, session_id__in=named):
            persons[tenant, row.session_id] = [(tenant, person) for person in row.persons]
    return {pk: persons.get((tenant, session)) or [(tenant or "default", "")] for pk, tenant, session in letters}


SESSION = AgentSession._meta.db_table
register(
    Retention(
        SESSION,
        "conversations; of one that is over the id stays, without a person",
        f"advice, warnings and orders are given in them. {SUITABILITY}. {SECURITIES_LAW}",
        days=TWENTY_YEARS,
        floor=TWENTY_YEARS,
        since="the last message, opening or deletion",
        held_back="a legal hold of the customer; a fork that shares its messages; what Redis has not been told of it",
        rows=Rows(
            AgentSession,
            due,
            grows_with="created_at",
            remove=remove,
            people=people,
            spare=shared,
            again=True,
            wait=True,
        ),
    ),
    along(AgentMessage, "messages", SESSION),
    along(SessionBranch, "turns in a conversation's path", SESSION),
    along(SessionNumbering, "why numbers have no message", SESSION),
    Retention(
        MessageDeadLetter._meta.db_table,
        "queued entries that could not become messages",
        f"who decided about it is in the audit log for good. {NO_LONGER}",
        days=400,
        since="retried or dropped",
        held_back="a legal hold of the session's customer; a letter that nobody has decided about",
        rows=Rows(MessageDeadLetter, letters_due, people=of_letters),
    ),
)
