"""HTTP routes of analysts' queries."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict

from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from guard.access.matrix import Action
from memory.profiles.queries import policies, selectors, services
from memory.profiles.queries.gate import Verdict

router = Router(tags=["analytics"])


class SqlIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)

    sql: str
    dialect: str = "mysql"


class ListIn(Schema):
    before: str = ""
    limit: int = selectors.LIMIT


def _may(action: Action) -> AgentAuth:
    return AgentAuth(lambda caller, path: policies.may_ask(caller, action))


@router.post(
    "/analytics/queries", auth=_may("write"), summary="Run one SELECT over the core's facts",
    description=(
        "Rows of the caller's tenant. Statements are MySQL's (`dialect` is `mysql`, and may be left out). "
        "Whole numbers are JSON numbers, all others text with every digit; instants are "
        "RFC 3339. At most `ANALYTICS_ROWS` rows (`truncated` tells of more). Refused statements are 403 or 422 with "
        "`query_id`. Without a grant, groups of fewer than `ANALYTICS_MIN_GROUP` customers are left out, figures to "
        "which fewer gave something are null, and `withheld` is `{under, rows}`: how many groups that were, null where "
        "none, or where telling would be of fewer customers itself; it is null where no customers' rows are in the "
        "statement or they may be seen. The answer is not kept for a repeat with the same Idempotency-Key."
    ),
)  # fmt: skip
def run(request: HttpRequest, body: SqlIn) -> HttpResponse:
    answer = services.run_query(caller=caller_of(request), sql=body.sql, dialect=body.dialect)
    withheld = answer.withheld
    return _json(
        {
            "query_id": answer.query_id,
            "columns": list(answer.result.columns),
            "rows": list(answer.result.rows),
            "truncated": answer.result.truncated,
            "duration_ms": answer.duration_ms,
            "withheld": {"under": withheld.under, "rows": withheld.rows} if withheld is not None else None,
            "fingerprint": answer.verdict.fingerprint,
        }
    )


@router.post(
    "/analytics/queries/check", auth=_may("write"), summary="What would become of a statement",
    description="Answers 200 for every verdict, and runs nothing. It is written down as a run is.",
)  # fmt: skip
def check(request: HttpRequest, body: SqlIn) -> HttpResponse:
    asked = services.check_query(caller=caller_of(request), sql=body.sql, dialect=body.dialect)
    return _json({"query_id": asked.query_id, **_verdict(asked.verdict)})


@router.get(
    "/analytics/queries", auth=_may("read"), summary="One's own statements, newest first",
    description="`state`: refused, checked, running, done, timeout, too_large, failed, or unfinished (never ended).",
)  # fmt: skip
def listed(request: HttpRequest, query: Query[ListIn]) -> HttpResponse:
    found, following = selectors.own_queries(caller=caller_of(request), before=query.before, limit=query.limit)
    return _json({"items": [selectors.document(entry) for entry in found], "next": following})


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "allowed": verdict.allowed,
        "code": verdict.code or None,
        "detail": verdict.detail or None,
        "tables": list(verdict.tables),
        "columns": list(verdict.columns),
        "personal": list(verdict.personal),
        "fingerprint": verdict.fingerprint or None,
    }


def _json(body: Any) -> HttpResponse:
    response = HttpResponse(canonical_json(body), content_type="application/json; charset=utf-8")
    # Rows are facts about many people: nobody keeps them on the way.
    response["Cache-Control"] = "no-store"
    return response
