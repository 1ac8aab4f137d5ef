"""What of the sessions an erasure removes, and how: `memory.erasure` calls it.

A customer's sessions are those about the customer, whichever agent's, and those that the customer had under the
customer agent; with them every session that was forked from one of these, for a fork shares its messages. What
everybody said in them goes. What stays of a session is its row, without a person: its id, which is never used again,
its agent, and how far it was numbered, which explains to `reconcile` why there are no messages.

Removed is not changed: a message whose text were blanked would still tell when, how long and how often somebody spoke.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from config.base import redis as base_redis
from config.base.clock import now
from config.base.keys import registered
from config.base.redis import RedisUnavailable, Script
from guard.access.models import Agent
from memory.erasure.names import Reader
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.sessions import gone
from memory.sessions.keys import CTX, GROUP, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionBranch, SessionNumbering
from memory.sessions.owners import forget_owners, owner_of_row

NAME = "memory.sessions"

_erase = Script.beside(__file__, "erase")
_purge = Script.beside(__file__, "purge")
_tally = Script.beside(__file__, "tally")

SESSIONS_A_STEP = 100
ROWS_A_STEP = 1000
BYTES_A_STEP = 32 * 1024 * 1024
_IDENTS_A_PASS = 2000
_LOOK_AT = 2000


# --- whose ------------------------------------------------------------------------------------------------------


def _whose(subject: Subject) -> list[QuerySet[AgentSession]]:
    """One query an index: an OR over two would be a walk through the table, with every row of it locked."""
    rows = AgentSession.objects.filter(tenant=subject.tenant).order_by()
    if subject.whole_tenant:
        return [rows]
    mine = subject.customer_id
    return [rows.filter(customer_id=mine), rows.filter(agent=Agent.CUSTOMER, actor_id=mine)]


def _forked_from(tenant: str, pks: set[int]) -> list[int]:
    """Sessions that share messages of these. Reads the lineages of the tenant's forks, which are few."""
    forks = AgentSession.objects.filter(tenant=tenant, lineage__isnull=False, erased_at=None).order_by()
    lineages = forks.values_list("pk", "lineage").iterator(chunk_size=2000)
    return [pk for pk, lineage in lineages if any(of in pks for of, _seq in lineage or ())]


def _mark(subject: Subject, step: Step) -> int:
    """Marks the next sessions; from the commit on they refuse every write. Returns how many.

    By locking reads: a session that is being made at this moment is waited for.
    """
    pks: list[int] = step.remains.setdefault("pks", [])
    found: list[AgentSession] = []
    for rows in _whose(subject):
        found = list(rows.filter(erased_at=None).select_for_update()[:SESSIONS_A_STEP])
        if found:
            break
    else:
        forks = _forked_from(subject.tenant, set(pks))[:SESSIONS_A_STEP]
        found = list(AgentSession.objects.filter(pk__in=forks, erased_at=None).order_by("pk").select_for_update())
    at = now()
    marked = AgentSession.objects.filter(pk__in=[row.pk for row in found])
    # detached_at: whichever process next catches up with what Redis missed closes these there.
    marked.update(erased_at=at, deleted_at=Coalesce(F("deleted_at"), at), detached_at=at)
    pks += [row.pk for row in found]
    step.count("sessions", len(found))
    return len(found)


# --- Redis ------------------------------------------------------------------------------------------------------


def _chunks(pks: Sequence[int], size: int) -> Iterator[list[AgentSession]]:
    for start in range(0, len(pks), size):
        yield list(AgentSession.objects.filter(pk__in=pks[start : start + size]).order_by("pk"))


def _names(row: AgentSession) -> list[str]:
    """Every key of one session, whichever room declared it; its context first."""
    start = CTX.pattern.removesuffix("ctx")
    kinds = [key for key in registered() if key.pattern.startswith(start) and key is not CTX]
    parts = {"agent": row.agent, "session_id": row.session_id}
    return [CTX(row.tenant, **parts), *(key(row.tenant, **parts) for key in kinds)]


def _out_of_redis(rows: Sequence[AgentSession]) -> int:
    """Removes keys, leaves marks; returns how many keys there were. 1 round trip each. Errors: RedisUnavailable."""
    client = base_redis.state()
    return sum(int(_erase(client, _names(row), [settings.SESSION_TTL_SECONDS])) for row in rows)


def _out_of_stream(idents: Sequence[str], tenant: str = "", *, only_count: bool = False) -> Iterator[int]:
    """Removes (or counts) queued entries, a slice at a time. Errors: RedisUnavailable."""
    client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
    for first in range(0, max(1, len(idents)), _IDENTS_A_PASS):
        part, start = idents[first : first + _IDENTS_A_PASS], "-"
        while start:
            start, found = _purge(
                client, [PENDING()], [GROUP, start, _LOOK_AT, "1" if only_count else "0", tenant, *part]
            )
            yield int(found)


def _idents(rows: Sequence[AgentSession]) -> list[str]:
    return [owner_of_row(row).ident for row in rows]


def _everywhere_in_redis(job: Erasing, pks: Sequence[int]) -> bool:
    """Keys first, then the queue: from the marks on nothing new is queued. False where Redis is away."""
    idents: list[str] = []
    tenant = job.subject.tenant if job.subject.whole_tenant else ""
    try:
        for rows in _chunks(pks, SESSIONS_A_STEP):
            job.step(lambda step, rows=rows: step.count("redis_keys", _out_of_redis(rows)))  # type: ignore[misc]
            idents += _idents(rows)
        if not idents and not tenant:
            return True
        slices = _out_of_stream(idents, tenant)
        more = True
        while more:
            # A slice is not taken twice: what it removed is counted, or counted as nothing after a deadlock.
            def take(step: Step) -> bool:
                found = next(slices, None)
                step.count("queued", found or 0)
                return found is not None

            more = job.step(take)
    except RedisUnavailable:
        return False
    return True


# --- MySQL ------------------------------------------------------------------------------------------------------


def _remove_messages(pks: Sequence[int], step: Step) -> bool:
    """The next messages of these sessions; False when there are none.

    By a locking read, which waits for an insert that is not committed yet; whoever inserts after it sees the mark.
    """
    rows: list[tuple[int, int]] = []
    room = BYTES_A_STEP
    for pk in pks:
        mine = AgentMessage.objects.filter(session_row_id=pk).order_by("seq").select_for_update()
        for found, size in mine.values_list("pk", "size")[: ROWS_A_STEP - len(rows)]:
            rows.append((found, size))
            room -= size
            if room <= 0:
                break
        if room <= 0 or len(rows) >= ROWS_A_STEP:
            break
    if not rows:
        return False
    AgentMessage.objects.filter(pk__in=[pk for pk, _ in rows]).delete()
    step.count("messages", len(rows))
    step.count("bytes", sum(size for _, size in rows))
    return True


def _remove_rest(rows: Sequence[AgentSession], step: Step) -> None:
    """Dead letters, turns and notes on numbers of these sessions; then the persons in their rows."""
    pks = [row.pk for row in rows]
    for tenant in {row.tenant for row in rows}:
        named = [row.session_id for row in rows if row.tenant == tenant]
        letters = MessageDeadLetter.objects.filter(tenant=tenant, session_id__in=named).order_by("pk")
        step.count("dead_letters", _remove_locked(letters))
    step.count("branches", _remove_locked(SessionBranch.objects.filter(session_row__in=pks).order_by("pk")))
    step.count("numbering", _remove_locked(SessionNumbering.objects.filter(session_row__in=pks).order_by("pk")))
    gone.blank(pks)


def _remove_locked(rows: QuerySet[Any]) -> int:
    pks = list(rows.select_for_update().values_list("pk", flat=True))
    if pks:
        rows.model._default_manager.filter(pk__in=pks).delete()
    return len(pks)


def erase(job: Erasing) -> None:
    """Steps: 1. mark every session, then every fork of one: nobody writes there any more; 2. Redis: keys, then the
    queue; 3. MySQL: messages, in batches of 1,000 rows or 32 MiB, then the rest, then the persons in the session's
    row; 4. what Redis has been told is no longer open. Killed anywhere, the next run goes on from what is open.
    Cost: for each session 1 round trip and about 3 queries, and the stream is walked once.
    """
    while job.step(lambda step: _mark(job.subject, step)):
        pass
    pks: list[int] = job.remains.get("pks", [])
    told = _everywhere_in_redis(job, pks)
    for rows in _chunks(pks, SESSIONS_A_STEP):
        mine = [row.pk for row in rows]
        while job.step(lambda step, mine=mine: _remove_messages(mine, step)):  # type: ignore[misc]
            pass
        job.step(lambda step, rows=rows: _remove_rest(rows, step))  # type: ignore[misc]
    if job.subject.whole_tenant:
        job.step(lambda step: _remove_letters_of(job.subject.tenant, step))
    forget_owners()

    def close(step: Step) -> None:
        if told:
            open_pks = step.remains.pop("pks", [])
            if set(open_pks) - set(pks):  # marked by another run meanwhile
                step.remains["pks"] = [pk for pk in open_pks if pk not in set(pks)]
            if pks:
                step.again["pks"] = sorted({*step.again.get("pks", []), *pks})
        elif not step.remains.get("pks"):
            step.remains.pop("pks", None)

    job.step(close)


def _remove_letters_of(tenant: str, step: Step) -> None:
    """Letters of sessions that never were."""
    step.count("dead_letters", _remove_locked(MessageDeadLetter.objects.filter(tenant=tenant).order_by("pk")))


def finish(left: Mapping[str, Any]) -> dict[str, Any] | None:
    """What Redis had not been told when it was away. Errors: RedisUnavailable."""
    idents: list[str] = []
    for rows in _chunks(left.get("pks", []), SESSIONS_A_STEP):
        _out_of_redis(rows)
        idents += _idents(rows)
    if idents:
        for _found in _out_of_stream(idents):
            pass
    return None


# --- counting ---------------------------------------------------------------------------------------------------


def count(subject: Subject) -> Counts:
    """What there is of a customer now. Queued entries are left out while Redis is away."""
    pks: set[int] = set()
    for rows in _whose(subject):
        pks.update(rows.values_list("pk", flat=True))
    while forks := set(_forked_from(subject.tenant, pks)) - pks:
        pks |= forks
    living = list(AgentSession.objects.filter(pk__in=pks, erased_at=None))
    messages = AgentMessage.objects.filter(session_row__in=pks).aggregate(rows=Count("pk"), size=Sum("size"))
    letters = MessageDeadLetter.objects.filter(tenant=subject.tenant)
    if not subject.whole_tenant:
        letters = letters.filter(session_id__in=[row.session_id for row in living])
    counts = {
        "sessions": len(living),
        "messages": messages["rows"],
        "bytes": messages["size"] or 0,
        "dead_letters": letters.count(),
    }
    try:
        tenant = subject.tenant if subject.whole_tenant else ""
        counts["queued"] = sum(_out_of_stream(_idents(living), tenant, only_count=True)) if living or tenant else 0
    except RedisUnavailable:
        pass
    return counts


def tenants() -> dict[str, Counts]:
    """Counts of each tenant: 3 queries, 1 walk over Redis's names and 1 over the stream. Errors: RedisUnavailable."""
    table: dict[str, Counts] = {}

    def put(tenant: str, what: str, how_many: int) -> None:
        if how_many:
            table.setdefault(tenant, {})[what] = table.get(tenant, {}).get(what, 0) + how_many

    living, erased = Count("pk", filter=Q(erased_at=None)), Count("pk", filter=Q(erased_at__isnull=False))
    rows = AgentSession.objects.order_by().values_list("tenant").annotate(living=living, erased=erased)
    for tenant, sessions, stones in rows:
        put(tenant, "sessions", sessions)
        put(tenant, "erased_sessions", stones)
    sums = AgentMessage.objects.order_by().values_list("tenant").annotate(Count("pk"), Sum("size"))
    for tenant, messages, size in sums:
        put(tenant, "messages", messages)
        put(tenant, "bytes", size or 0)
    letters = MessageDeadLetter.objects.filter(settled="").order_by().values_list("tenant").annotate(Count("pk"))
    for tenant, waiting in letters:
        put(tenant or "default", "dead_letters", waiting)
    for tenant, how_many in _open_in_redis():
        put(tenant, "open_in_redis", how_many)
    start = "-"
    while start:
        start, flat = _tally(base_redis.state(), [PENDING()], [start, _LOOK_AT])
        for i in range(0, len(flat), 2):
            put(flat[i] or "default", "queued", int(flat[i + 1]))
    return table


def _open_in_redis() -> Iterator[tuple[str, int]]:
    """Sessions whose state is in Redis, a batch at a time; marks of deleted ones are none."""
    client = base_redis.state()
    batch: list[Any] = []

    def living() -> Iterator[tuple[str, int]]:
        with base_redis.translated():
            pipe = client.pipeline(transaction=False)
            for name in batch:
                pipe.hexists(name.name, "server")
            answers = pipe.execute(raise_on_error=False)
        for name, there in zip(batch, answers, strict=True):
            yield name.tenant, int(there == 1)  # an error where the key is no hash
        batch.clear()

    for name in Reader([CTX]).scan(settings.REDIS_URL):
        batch.append(name)
        if len(batch) == 1000:
            yield from living()
    if batch:
        yield from living()


PART = Part(NAME, count=count, erase=erase, finish=finish, tenants=tenants)
