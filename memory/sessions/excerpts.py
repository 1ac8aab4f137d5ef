"""What was said around a moment, for a page about that moment: of whoever may see it, bounded, past every cache.

MySQL alone is asked: a message is there within seconds of being said, and what happened is older than that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q
from django.db.models.functions import Substr

from guard.access.models import Agent
from memory.sessions.models import AgentMessage, AgentSession

MOST_SESSIONS = 8
MOST_MESSAGES = 40
MOST_EACH = 20  # of one session, so that a long one does not push out the others
MOST_CHARS = 1500  # of one message; the rest is in the session
_MOST_LOOKED_AT = 2000  # messages of that time whose heads are compared


@dataclass(frozen=True)
class Said:
    """One message. content: its beginning; cut: there is more. traced: it was said under one of the traces."""

    message: AgentMessage  # without content and payload
    content: str
    cut: bool
    traced: bool


@dataclass(frozen=True)
class Excerpt:
    """A session and what of it was said around the moment, oldest first. more: how many messages of it in that time,
    or under the traces, are not among them."""

    session: AgentSession
    said: Sequence[Said]
    more: int

    @property
    def traced(self) -> bool:
        return any(one.traced for one in self.said)


class _Head(NamedTuple):
    pk: int
    session_row_id: int
    trace_id: str
    created_at: datetime


def excerpts(
    *,
    tenant: str,
    customer_id: str = "",
    actor_id: str = "",
    trace_ids: Collection[str] = (),
    since: datetime,
    until: datetime,
) -> list[Excerpt]:
    """Conversations about a customer, with them, or of an actor, around a time; those under the traces first.

    The customer's: all that they had with an agent or that others had about them, said in `[since, until]` or under a
    trace. The actor's (an advisor): the same where no customer is asked for; else of those that name no customer, and
    only what was said under a trace, for the rest is about others.
    At most MOST_SESSIONS sessions, the newest that had begun by `until`, and MOST_MESSAGES messages: under a trace
    first, then the newest. Sessions of which nothing falls into it are left out.
    Cost: 5 queries however much there is, fewer where there is no session or no message. They read the trace and the
    time of every message of these sessions, and the contents of those alone that are given.
    """
    sessions = _sessions(tenant, customer_id, actor_id, until)
    if not sessions:
        return []
    traces = {trace for trace in trace_ids if trace}
    heads = _heads(sessions, customer_id, traces, since, until)
    chosen = _chosen(heads, traces)
    if not chosen:
        return []
    total = Counter(head.session_row_id for head in heads)
    said: dict[int, list[Said]] = defaultdict(list)
    rows = AgentMessage.objects.filter(pk__in=chosen).defer("content", "payload")
    for row in rows.annotate(beginning=Substr("content", 1, MOST_CHARS + 1)).order_by("seq"):
        text: str = row.beginning
        said[row.session_row_id].append(Said(row, text[:MOST_CHARS], len(text) > MOST_CHARS, row.trace_id in traces))
    found = [
        Excerpt(session, said[session.pk], total[session.pk] - len(said[session.pk]))
        for session in sessions
        if session.pk in said
    ]
    return sorted(found, key=lambda one: (one.traced, one.said[-1].message.created_at), reverse=True)


def _sessions(tenant: str, customer_id: str, actor_id: str, until: datetime) -> list[AgentSession]:
    """The newest begun by then, newest first. A query by index for each way in which a session may be of it."""
    begun = AgentSession.objects.filter(tenant=tenant, created_at__lte=until, erased_at=None)
    ways = []
    if customer_id:
        ways.append(begun.filter(customer_id=customer_id))
        ways.append(begun.filter(actor_id=customer_id, agent=Agent.CUSTOMER))
    if actor_id:
        own = begun.filter(actor_id=actor_id).exclude(agent=Agent.CUSTOMER)
        ways.append(own.filter(customer_id="") if customer_id else own)
    found = {row.pk: row for way in ways for row in way.order_by("-pk")[:MOST_SESSIONS]}
    return [found[pk] for pk in sorted(found, reverse=True)][:MOST_SESSIONS]


def _heads(
    sessions: Sequence[AgentSession], customer_id: str, traces: Collection[str], since: datetime, until: datetime
) -> list[_Head]:
    """The newest first."""
    about = [row.pk for row in sessions if not customer_id or customer_id in (row.customer_id, row.actor_id)]
    wanted = Q(session_row_id__in=about, created_at__range=(since, until)) if about else Q(pk__in=[])
    if traces:
        wanted |= Q(trace_id__in=traces)
    rows = AgentMessage.objects.filter(wanted, session_row_id__in=[row.pk for row in sessions])
    rows = rows.order_by("-created_at", "-pk")[:_MOST_LOOKED_AT]
    return [_Head(*row) for row in rows.values_list("pk", "session_row_id", "trace_id", "created_at")]


def _chosen(heads: Sequence[_Head], traces: Collection[str]) -> list[int]:
    """Which messages are given."""
    chosen: list[int] = []
    each: Counter[int] = Counter()
    for head in sorted(heads, key=lambda head: head.trace_id not in traces):  # stable: the newest first within each
        if len(chosen) < MOST_MESSAGES and each[head.session_row_id] < MOST_EACH:
            each[head.session_row_id] += 1
            chosen.append(head.pk)
    return chosen
