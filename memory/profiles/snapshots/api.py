"""HTTP route of the advisor snapshots."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from memory.profiles.snapshots import policies, selectors

router = Router(tags=["profiles"])


@router.get(
    "/snapshots/{advisor_id}/{customer_id}",
    auth=AgentAuth(
        lambda caller, path: policies.may_snapshot(
            caller, "read", advisor_id=path["advisor_id"], customer_id=path["customer_id"]
        )
    ),
    summary="What a customer holds, summed up for the advisor who has the customer",
    description=(
        "`total`, `by_class`, `by_product` (the largest ten, and the others together), `top_share`, `cash_like`, "
        "`change_30d` (null with a `reason` where there is nothing to compare with), `assessment`, "
        "`suitability_flags`, `concentration_flags` (by the limits of the rule in force), `data_quality`, `as_of` (the "
        "day of the positions), `snapshot_at`. Money is CNY and a string, shares are of the total. At most 15 minutes "
        "old. While the core system is away the last copy is answered with `stale: true` and its `age_seconds`; "
        "without one 503 CORE_UNAVAILABLE."
    ),
)
def get_snapshot(request: HttpRequest, advisor_id: str, customer_id: str) -> HttpResponse:
    document = selectors.read_snapshot(caller=caller_of(request), advisor_id=advisor_id, customer_id=customer_id)
    response = HttpResponse(canonical_json(document), content_type="application/json; charset=utf-8")
    response["Cache-Control"] = "no-store"
    return response
