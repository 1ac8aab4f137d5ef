"""HTTP routes of admission."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from config.base.network import NOBODY, client_ip
from config.base.trace import current_trace_id
from guard.access.http import AgentAuth, caller_of
from guard.admission.amounts import from_units
from guard.admission.ending import release, renew, settle
from guard.admission.schemas import (
    AdmissionOut,
    AdmitIn,
    ReleaseIn,
    ReleaseOut,
    RenewIn,
    RenewOut,
    SettleIn,
    SettlementOut,
)
from guard.admission.services import admit
from guard.admission.verdict import Quota, Verdict

router = Router(tags=["admissions"])


def _shown(quota: Quota, number: int) -> int | str:
    return str(from_units(number)) if quota.name == "budget" else number


def _headers(response: HttpResponse, verdict: Verdict) -> HttpResponse:
    """RateLimit fields as draft-ietf-httpapi-ratelimit-headers has them: a quota `q`, a window `w` in seconds, what
    remains `r`, seconds `t` until there is more. The budget counts whole units of money there, rounded down."""
    policies, states = [], []
    for quota in verdict.quotas:
        scale = 1_000_000 if quota.name == "budget" else 1
        policy, state = f'"{quota.name}";q={quota.limit // scale}', f'"{quota.name}";r={quota.left // scale}'
        policies.append(policy + (f";w={quota.window}" if quota.window else ""))
        states.append(state + (f";t={quota.reset}" if quota.reset else ""))
    if verdict.refused_by and verdict.refused_by not in ("block", "pause", "session"):
        name, scale = verdict.refused_by, 1_000_000 if verdict.refused_by == "budget" else 1
        window = verdict.window
        policies.append(f'"{name}";q={verdict.limit // scale}' + (f";w={window}" if window else ""))
        states.append(f'"{name}";r={verdict.remaining // scale};t={verdict.seconds_to_wait}')
    if policies:
        response["RateLimit-Policy"] = ", ".join(policies)
        response["RateLimit"] = ", ".join(states)
    if not verdict.allowed:
        response["Retry-After"] = str(verdict.seconds_to_wait)
    return response


def _address(request: HttpRequest) -> str | None:
    """Of the request itself: what it says of itself is believed of configured proxies alone. None over a unix socket
    that is no configured proxy's, where all clients would be one."""
    found = client_ip(request)
    return None if found == NOBODY else found


def _json(value: Any, status: int, content_type: str = "application/json") -> HttpResponse:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return HttpResponse(body, status=status, content_type=content_type)


@router.post("/admissions", auth=AgentAuth(), response={201: AdmissionOut})
def admit_route(request: HttpRequest, body: AdmitIn) -> HttpResponse:
    """Whether work may start: 201 with what was taken, else a problem that names the limit, what remains and when to
    come again (429; 402 for the budget; 403 blocked or paused; 409 another run of the session)."""
    verdict = admit(
        caller_of(request),
        action=body.action,
        ip=body.ip or _address(request),
        estimate=body.estimate,
        run=body.run_id,
        session=body.session_id,
        node=body.node_id,
        lease=body.lease,
        slot=body.slot,
    )
    if not verdict.allowed:
        error = verdict.error()
        response = _json(error.problem(current_trace_id()), error.status, "application/problem+json")
        return _headers(response, verdict)
    limits = [
        {
            "name": quota.name,
            "limit": _shown(quota, quota.limit),
            "remaining": _shown(quota, quota.left),
            "reset": quota.reset,
        }
        for quota in verdict.quotas
    ]
    shown = {
        "admission_id": verdict.admission_id,
        "allowed": True,
        "lease": verdict.lease,
        "fence": verdict.fence or None,
        "limits": limits,
    }
    return _headers(_json(shown, 201), verdict)


@router.post("/admissions/{admission_id}/settle", auth=AgentAuth(), response=SettlementOut)
def settle_route(request: HttpRequest, admission_id: str, body: SettleIn) -> HttpResponse:
    """What the work cost: in the ledger when this answers. Once; the same amount again answers the same."""
    caller = caller_of(request)
    done = settle(caller, admission_id, actual=body.actual, action=body.action, keep=body.keep, **body.of_run())
    shown = {
        "admission_id": done.admission_id,
        "amount": str(done.amount),
        "month": done.month,
        "repeated": done.repeated,
    }
    return _json(shown, 200)


@router.post("/admissions/{admission_id}/release", auth=AgentAuth(), response=ReleaseOut)
def release_route(request: HttpRequest, admission_id: str, body: ReleaseIn) -> HttpResponse:
    """Gives back what was taken, without a cost; `unused` also the day's call, where no work began."""
    given_back = release(caller_of(request), admission_id, unused=body.unused, **body.of_run())
    return _json({"released": given_back}, 200)


@router.post("/admissions/{admission_id}/renew", auth=AgentAuth(), response=RenewOut)
def renew_route(request: HttpRequest, admission_id: str, body: RenewIn) -> HttpResponse:
    """Keeps slots, reservation and a run's lease; to be called each third of the lease. 409 when it was lost."""
    seconds = renew(caller_of(request), admission_id, lease=body.lease, **body.of_run())
    return _json({"lease": seconds}, 200)
