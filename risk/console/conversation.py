"""The conversation that led to an alert: what was said under its traces, and around its trades."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from guard.access.masking import mask
from guard.audit.about import requests_of_trades
from memory.sessions.excerpts import Excerpt, excerpts
from memory.sessions.models import AgentMessage
from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit

MOST_TRACES = 10
MOST_TRADES = 20
BEFORE, AFTER = timedelta(days=3), timedelta(hours=1)


@dataclass(frozen=True)
class Line:
    """One message as it is shown. text: without people's ids, names and numbers unless they may be seen."""

    message: AgentMessage
    who: str  # css: of the role
    text: str
    cut: bool
    traced: bool


@dataclass(frozen=True)
class Talk:
    """A session and what of it is shown. actor: masked where it is a customer."""

    excerpt: Excerpt
    actor: str
    lines: Sequence[Line]


def traces_of(alert: RiskAlert, hits: Sequence[RiskAlertHit]) -> list[str]:
    """The traces under which the alert's trades were asked for, by what advisors' agents reported, and those of the
    evaluations that found them. MOST_TRACES at most, those of the trades first. One query."""
    trades = list(dict.fromkeys(hit.trade_id for hit in hits if hit.trade_id))[:MOST_TRADES]
    asked = [row.trace_id for row in requests_of_trades(tenant=alert.tenant, trade_ids=trades)] if trades else []
    found = [*asked, alert.trace_id, *(hit.trace_id for hit in hits)]
    return [trace for trace in dict.fromkeys(found) if trace][:MOST_TRACES]


def talks_of(
    alert: RiskAlert, traces: Collection[str], first: datetime, last: datetime, written: Callable[[str], str]
) -> list[Talk]:
    """Sessions with and about the customer from BEFORE the first trade to AFTER the last, and what was said under the
    traces; of advisors' conduct, the advisor's own. written: what becomes of words before they are shown.

    Queries: see `excerpts`.
    """
    if alert.alert_type == AlertType.DATA_QUALITY:
        return []
    found = excerpts(
        tenant=alert.tenant,
        customer_id="" if alert.alert_type == AlertType.PATTERN else alert.customer_id,
        actor_id=alert.advisor_id,
        trace_ids=traces,
        since=first - BEFORE,
        until=last + AFTER,
    )
    return [
        Talk(
            one,
            mask(one.session.actor_id) if one.session.agent == "customer" else one.session.actor_id,
            [Line(said.message, said.message.role, written(said.content), said.cut, said.traced) for said in one.said],
        )
        for one in found
    ]
