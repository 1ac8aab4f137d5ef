"""HTTP routes of the alerts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from config.base.clock import rfc3339
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from memory.profiles.schemas import Flag, Restriction
from risk.alerts import profile

router = Router(tags=["alerts"])


class AfterAlertIn(Schema):
    """What a confirmed alert adds to the customer's l3; one entry replaces that of the same code, others stay."""

    model_config = ConfigDict(extra="forbid")
    flags: list[Flag] = Field(default_factory=list, max_length=100)
    restrictions: list[Restriction] = Field(default_factory=list, max_length=50)


class AfterAlertOut(Schema):
    customer_id: str
    version: int
    updated_at: str
    risk_score: int
    risk_level: str
    unfounded: list[str]


@router.post(
    "/alerts/{alert_id}/profile",
    auth=AgentAuth(lambda caller, path: profile.may_write_after_alert(caller)),
    response={200: AfterAlertOut, 201: AfterAlertOut},
    summary="Bring the l3 of the alert's customer up to date",
)
def write_profile(request: HttpRequest, alert_id: str, body: AfterAlertIn) -> HttpResponse:
    """The risk agent calls it after an alert was opened, joined or disposed of. Score and level follow from the
    customer's open and confirmed alerts, as far as their rules may be told (never RISK-003, 004, 008); `open_alerts`
    and `reasons` stay with risk. Flags and restrictions need this alert to be confirmed (409 NEEDS_CONFIRMED_ALERT):
    an open one moves the score only. Those that follow from RISK-003 or 004 alone are of visibility risk (422).
    Repeating it writes nothing. `unfounded`: restrictions that count although no alert of the customer stands
    confirmed any more; lift them with `PUT /profiles/l3/{customer_id}`. 201 where there was no l3."""
    after = profile.write_after_alert(
        caller=caller_of(request), alert_id=alert_id, flags=_stored(body.flags), restrictions=_stored(body.restrictions)
    )
    answer = {
        "customer_id": after.customer_id,
        "version": after.written.version,
        "updated_at": rfc3339(after.written.updated_at),
        "risk_score": after.risk_score,
        "risk_level": after.risk_level,
        "unfounded": after.unfounded,
    }
    response = HttpResponse(
        canonical_json(answer),
        content_type="application/json; charset=utf-8",
        status=201 if after.written.created else 200,
    )
    response["ETag"] = f'"{after.written.version}"'
    return response


def _stored(entries: list[Flag] | list[Restriction]) -> list[dict[str, Any]]:
    """As the profile keeps them: what was not said is not there."""
    return [entry.model_dump(mode="json", exclude_none=True) for entry in entries]
