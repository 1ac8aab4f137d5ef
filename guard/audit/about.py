"""Rows for a page about one object, person or moment: what happened to it, who was turned away from what, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from guard.audit.models import ActorType, AuditLog, Decision, EventType
from guard.audit.selectors import Found, page_of


def refusals(
    *,
    tenant: str,
    since: datetime,
    until: datetime,
    actor_id: str = "",
    customer: str = "",
    trace_ids: Collection[str] = (),
    limit: int = 100,
) -> list[AuditLog]:
    """What AI agents were refused in `[since, until]`, newest first: on behalf of that actor, about that customer, or
    under one of these traces; any of them will do, and nothing is looked for where none is given.

    customer: a pseudonym, as customers stand in the rows. Refusals of people of the console are not among them.
    Cost: at most 2 queries, each part of the search by its own index and no further than `limit` (by a trace: all of
    its rows).
    """
    ways = [{"trace_id": trace} for trace in sorted(set(trace_ids) - {""})]
    if actor_id:
        ways.append({"actor_id": actor_id})
    if customer:
        ways.append({"customer": customer})
    if not ways:
        return []
    rows = AuditLog.objects.filter(
        tenant=tenant, event_type=EventType.AUTHZ, decision=Decision.FORBIDDEN, at__range=(since, until)
    )
    rows = rows.filter(actor_type__in=(ActorType.AGENT, ActorType.CUSTOMER, ActorType.SERVICE))
    return page_of(Found(rows, ways), size=limit)


def rows_of_object(
    *, tenant: str, object_id: str, object_type: str, event_types: Collection[str], limit: int = 200
) -> list[AuditLog]:
    """The newest rows of these kinds about one object, newest first. One query by (object, at)."""
    rows = AuditLog.objects.filter(
        tenant=tenant, object_id=object_id, object_type=object_type, event_type__in=set(event_types)
    )
    return list(rows.order_by("-at", "-id")[:limit])


def requests_of_trades(*, tenant: str, trade_ids: Collection[str], limit: int = 50) -> Sequence[AuditLog]:
    """What advisors' AI agents reported of these trades (`trade_request`), newest first: their `trace_id` is the one
    that the trade was asked for under. One query."""
    rows = AuditLog.objects.filter(tenant=tenant, object_id__in=set(trade_ids), event_type=EventType.TRADE_REQUEST)
    return list(rows.order_by("-at", "-id")[:limit])
