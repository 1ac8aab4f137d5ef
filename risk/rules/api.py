"""HTTP route by which the risk agent has a trade evaluated now."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from config.base.clock import rfc3339
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of, refuse_body
from risk.alerts.models import RiskAlertHit
from risk.alerts.services import SettleResult
from risk.rules import evaluating

router = Router(tags=["rules"])


class FoundOut(Schema):
    """A finding on the trade. figures: what the rule compared, as the sentences of the console have it."""

    rule: str
    rule_version: int
    evidence_key: str
    score: int
    subtypes: list[str]
    alert_id: str
    customer_id: str
    occurred_at: str
    figures: dict[str, Any]


class LackOut(Schema):
    """A fact that the trade lacks; until it is there, the rules named by `limits_only`, or all, do not judge it."""

    missing: list[str]
    limits_only: bool
    alert_id: str
    customer_id: str


class EvaluatedOut(Schema):
    trade_id: str
    version: int
    status: str
    customers: list[str]
    hits: list[FoundOut]
    data_quality: list[LackOut]
    changed: dict[str, int]
    trace_id: str


@router.post(
    "/trades/{trade_id}/evaluate",
    auth=AgentAuth(lambda caller, path: evaluating.may_evaluate(caller)),
    response=EvaluatedOut,
    summary="Evaluate a trade now",
)
def evaluate(request: HttpRequest, trade_id: str) -> HttpResponse:
    """The risk agent only. Every rule over the trade as it now stands, and over whatever else of its customer it bears
    on; alerts are opened, joined or corrected as by a scan. `hits`: what is live of this trade; a savings plan's month
    stands under its first trade. `data_quality`: facts that it lacks. `changed`: counts of what was new, revised,
    withdrawn, cancelled or superseded, and of alerts opened and joined; all 0 where it was evaluated before. 404
    TRADE_NOT_FOUND where the core has no such trade. No body."""
    refuse_body(request)
    found = evaluating.evaluate_trade(tenant=caller_of(request).tenant, trade_id=trade_id)
    answer = {
        "trade_id": found.trade_id,
        "version": found.version,
        "status": found.status,
        "customers": list(found.customers),
        "hits": [hit_document(row) for row in found.hits],
        "data_quality": [
            {
                "missing": list(row.subtypes),
                "limits_only": bool(row.figures.get("limits_only")),
                "alert_id": row.alert_id,
                "customer_id": row.customer_id,
            }
            for row in found.data_quality
        ],
        "changed": {
            field.name: getattr(found.changed, field.name)
            for field in fields(SettleResult)
            if field.name != "unchanged"
        },
        "trace_id": found.trace_id,
    }
    return HttpResponse(canonical_json(answer), content_type="application/json")


def hit_document(row: RiskAlertHit) -> dict[str, Any]:
    """A finding for the risk agent."""
    return {
        "rule": row.rule_id,
        "rule_version": row.rule_version,
        "evidence_key": row.evidence_key,
        "score": row.score,
        "subtypes": list(row.subtypes),
        "alert_id": row.alert_id,
        "customer_id": row.customer_id,
        "occurred_at": rfc3339(row.occurred_at),
        "figures": row.figures,
    }
