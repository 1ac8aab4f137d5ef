"""Sentences and figures of RISK-008, and the refused accesses behind them. An advisor is a person, no AI agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import business_zone
from guard.audit.models import EventType
from guard.audit.selectors import conduct_rows
from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit
from risk.console.amounts import percent
from risk.rules.risk_008 import OFF_HOURS_BURST, PROBE_THEN_TRADE, PROBING, PRODUCT_PUSH

Figures = Mapping[str, Any]
MAX_REFUSALS = 100
_AROUND = timedelta(hours=24)  # the longest window of refusals

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
    """One refusal of the audit log. target: a customer stands in it by pseudonym."""

    at: datetime
    code: str
    words: str
    object_type: str
    target: str
    action: str
    trace_id: str


def refused_accesses(alert: RiskAlert, hits: Sequence[RiskAlertHit]) -> list[RefusedAccess]:
    """The advisor's refusals from a day before the first finding to the last, newest first, at most MAX_REFUSALS.

    One query, and none for other alerts than those about advisors.
    """
    if alert.alert_type != AlertType.PATTERN or not hits:
        return []
    since = min(hit.occurred_at for hit in hits) - _AROUND
    until = max(hit.occurred_at for hit in hits)
    rows = conduct_rows(tenant=alert.tenant, advisor_id=alert.advisor_id, since=since, until=until)
    refusals = [row for row in rows if row.event_type == EventType.AUTHZ]
    return [
        RefusedAccess(
            at=row.at,
            code=row.code,
            words=str(REFUSALS.get(row.code, row.code)),
            object_type=row.object_type,
            target=str(row.input_summary.get("target") or row.object_id),
            action=str(row.input_summary.get("action") or ""),
            trace_id=row.trace_id,
        )
        for row in reversed(refusals[-MAX_REFUSALS:])
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
