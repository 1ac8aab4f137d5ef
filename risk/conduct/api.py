"""HTTP route by which advisor agents report what their advisor asked for."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from config.base.clock import rfc3339
from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from guard.audit.models import Decision, EventType
from risk.conduct import services

router = Router(tags=["audit"])


class ObservationIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    event_type: str = Field(default=EventType.TRADE_REQUEST.value, description="`trade_request`")
    trade_id: str = Field(description="as the core system has it, or will have it")
    trace_id: str = Field(
        default="", description="32 hex digits, of the conversation that led to it; without: this request's"
    )
    decision: str = Field(
        default=Decision.REQUESTED.value, description="`requested`, or `refused` where the agent turned it down"
    )
    code: str = Field(default="", description="why it was refused")


class ObservationOut(Schema):
    observation_id: str
    event_type: str
    decision: str
    trade_id: str
    trace_id: str
    created_at: str


@router.post(
    "/audit/observations",
    auth=AgentAuth(lambda caller, path: services.may_report(caller)),
    response={201: ObservationOut},
    summary="Report a trade request",
)
def observe(request: HttpRequest, body: ObservationIn) -> HttpResponse:
    """Advisor agents only. Whose request it is comes from the key (or `X-Actor-Id`), never from the body. The trade
    need not be in the core system yet: it is looked for during a day. 503 where the audit log takes no row: nothing was
    reported then."""
    if body.event_type != EventType.TRADE_REQUEST:
        raise DomainError("INVALID_REQUEST", "event_type: only trade_request can be reported")
    row = services.report_trade_request(
        caller=caller_of(request),
        trade_id=body.trade_id,
        trace_id=body.trace_id,
        decision=body.decision,
        code=body.code,
    )
    answer = {
        "observation_id": str(row.pk),
        "event_type": row.event_type,
        "decision": row.decision,
        "trade_id": body.trade_id,
        "trace_id": row.trace_id,
        "created_at": rfc3339(row.at),
    }
    return HttpResponse(canonical_json(answer), status=201, content_type="application/json")
