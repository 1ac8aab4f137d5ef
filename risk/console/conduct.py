"""Sentences and figures of RISK-008, and the refused accesses behind them. An advisor is a person, no AI agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import business_zone
from guard.access.models import Agent
from guard.audit import pseudonyms
from guard.audit.about import refusals
from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit
from risk.console.amounts import percent
from risk.rules.risk_008 import OFF_HOURS_BURST, PROBE_THEN_TRADE, PROBING, PRODUCT_PUSH

Figures = Mapping[str, Any]
MAX_REFUSALS = 100
_AROUND = timedelta(hours=24)  # the longest window of refusals
_AFTER = timedelta(hours=1)

PERSONAL_DATA_LAW = gettext_lazy("Personal Information Protection Law (2021)")
PATTERNS: dict[str, Promise] = {
    PROBING: gettext_lazy("probing for access"),
    PROBE_THEN_TRADE: gettext_lazy("refused, then traded"),
    OFF_HOURS_BURST: gettext_lazy("burst outside working hours"),
    PRODUCT_PUSH: gettext_lazy("one product pushed"),
}
REFUSALS: dict[str, Promise] = {
    "AUTH_403_SCOPE": gettext_lazy("outside what the AI agent may do"),
    "NOT_OWNER": gettext_lazy("belongs to another"),
    "NOT_ASSIGNED": gettext_lazy("customer not assigned"),
}


@dataclass(frozen=True)
class RefusedAccess:
    """One refusal of the audit log. target: a customer stands in it by pseudonym. own: it is about the alert's
    customer. traced: under a trace of the alert."""

    at: datetime
    code: str
    words: str
    who: str
    agent: str
    object_type: str
    target: str
    own: bool
    traced: bool
    trace_id: str


def refused_accesses(alert: RiskAlert, hits: Sequence[RiskAlertHit], traces: Collection[str]) -> list[RefusedAccess]:
    """From a day before the first finding to the last, newest first, at most MAX_REFUSALS: what the advisor was refused
    and, of an alert about a customer, what anybody was about that customer or under its traces.

    Of such an alert until an hour after its last trade, for a refusal may follow on one. At most 3 queries.
    """
    if not hits:
        return []
    since = min(hit.occurred_at for hit in hits) - _AROUND
    until = max(hit.occurred_at for hit in hits)
    about_advisor = alert.alert_type == AlertType.PATTERN
    name = "" if about_advisor else pseudonyms.find(alert.tenant, [alert.customer_id]).get(alert.customer_id, "")
    rows = refusals(
        tenant=alert.tenant,
        since=since,
        until=until if about_advisor else until + _AFTER,
        actor_id=alert.advisor_id,
        customer=name,
        trace_ids=() if about_advisor else traces,
        limit=MAX_REFUSALS,
    )
    agents = dict(Agent.choices)
    return [
        RefusedAccess(
            at=row.at,
            code=row.code,
            words=str(REFUSALS.get(row.code, row.code)),
            who=row.actor_id,
            agent=str(agents.get(row.agent, row.agent)),
            object_type=row.object_type,
            target=str(row.input_summary.get("target") or row.object_id),
            own=bool(name) and row.customer == name,
            traced=row.trace_id in traces,
            trace_id=row.trace_id,
        )
        for row in rows
    ]


def sentence(figures: Figures, hit: RiskAlertHit) -> str:
    """Of each pattern its own. Errors: KeyError where the figures are of another version."""
    return _SENTENCES[figures["pattern"]](figures, hit)


def _probing(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "The advisor was refused access %(refusals)d times on %(targets)d targets from %(from)s to %(to)s; "
        "%(limit)d refusals on %(limit_targets)d targets within %(minutes)d minutes are the limit."
    ) % {
        "refusals": figures["refusals"],
        "targets": figures["targets"],
        "from": _local(figures["from"]),
        "to": _local(figures["completed_at"]),
        "limit": figures["limit_refusals"],
        "limit_targets": figures["limit_targets"],
        "minutes": figures["minutes"],
    }


def _probe_then_trade(figures: Figures, hit: RiskAlertHit) -> str:
    values = {
        "refused": _local(figures["refused_at"]),
        "traded": _local(figures["traded_at"]),
        "hours": figures["hours"],
        "trade": hit.trade_id,
        "product": hit.product_id,
    }
    if figures["by"] == "customer":
        return (
            _(
                "The advisor was refused a customer at %(refused)s, and that customer's trade %(trade)s was made at "
                "%(traded)s: within %(hours)d hours, and without an assignment begun in between."
            )
            % values
        )
    values |= {"refusals": figures["refusals"], "limit": figures["limit_refusals"]}
    return (
        _(
            "The advisor was refused %(refusals)d times about %(product)s, last at %(refused)s, and traded it "
            "(%(trade)s) at %(traded)s; %(limit)d refusals within %(hours)d hours before a trade are the limit."
        )
        % values
    )


def _off_hours_burst(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "%(events)d refusals and requests of the advisor from %(from)s to %(to)s, outside working time "
        "(%(opens)02d:00 to %(closes)02d:00 of working days); %(limit)d within %(minutes)d minutes are the limit."
    ) % {
        "events": figures["events"],
        "from": _local(figures["from"]),
        "to": _local(figures["completed_at"]),
        "opens": figures["opens"],
        "closes": figures["closes"],
        "limit": figures["limit_events"],
        "minutes": figures["minutes"],
    }


def _product_push(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "The advisor asked for purchases of %(product)s (%(risk)s) for %(customers)d customers within %(days)d days, "
        "%(pushed)d of %(requests)d own requests (%(share)s); the limits are %(limit)d customers and %(limit_share)s."
    ) % {
        "product": hit.product_id,
        "risk": figures["product_risk_level"],
        "customers": figures["customers"],
        "days": figures["days"],
        "pushed": figures["pushed"],
        "requests": figures["requests"],
        "share": percent(figures["pushed"] / figures["requests"]),
        "limit": figures["limit_customers"],
        "limit_share": percent(figures["limit_share"]),
    }


_SENTENCES = {
    PROBING: _probing,
    PROBE_THEN_TRADE: _probe_then_trade,
    OFF_HOURS_BURST: _off_hours_burst,
    PRODUCT_PUSH: _product_push,
}


def figures_of(figures: Figures) -> list[tuple[Any, Any]]:
    """Beside the sentence."""
    rows: list[tuple[Any, Any]] = [
        (_("pattern"), PATTERNS.get(str(figures.get("pattern")), figures.get("pattern"))),
        (_("completed"), _local(figures.get("completed_at"))),
    ]
    for label, value, limit in (
        (_("refusals / limit"), "refusals", "limit_refusals"),
        (_("targets / limit"), "targets", "limit_targets"),
        (_("events / limit"), "events", "limit_events"),
        (_("customers / limit"), "customers", "limit_customers"),
    ):
        if figures.get(value) is not None and figures.get(limit) is not None:
            rows.append((label, f"{figures[value]} / {figures[limit]}"))
    if figures.get("working_day") is not None:
        rows.append((_("working day"), _("yes") if figures["working_day"] else _("no")))
    return rows


def _local(told: Any) -> str:
    """A stored instant as `2026-06-15 21:04:30` in the business time zone; what is none is left as it is."""
    try:
        return datetime.fromisoformat(str(told)).astimezone(business_zone()).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(told or "")
