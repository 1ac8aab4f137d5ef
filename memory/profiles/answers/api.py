"""HTTP routes of the answer cache."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict

from config.base.clock import now, rfc3339
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from memory.profiles.answers import services

router = Router(tags=["answers"])


class _Asked(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: str
    model: str
    knowledge_version: str
    customer_id: str | None = None


class Lookup(_Asked):
    scope: Literal["public", "customer"] | None = None


class Kept(_Asked):
    answer: str
    made_from: Literal["public", "customer"]
    lease: str | None = None


@router.post(
    "/answers/lookup", auth=AgentAuth(), summary="The answer that is kept for a question, or the lease to make it",
    description=(
        "Answers `hit` with `answer`, `scope` (what it was made from), `made_at` and `age_seconds`; for a miss "
        "`lease`, with which the answer may be kept, or, while another makes it, `retry_after` in seconds; with "
        "neither nobody makes it for the caller, whose answer is not kept (another `knowledge_version` was announced, "
        "or Redis is away). Questions are compared without width, spacing, marks at the end (a question mark counts "
        "where the words do not ask) and the capital of a first word such as What. `scope` is `customer` where a "
        "customer is named, and for the customer agent always unless it says `public`: then answers made from that "
        "customer's data for the same actor and public ones are found, and never another's. With Redis away it is a "
        "miss without a lease."
    ),
)  # fmt: skip
def lookup(request: HttpRequest, body: Lookup) -> HttpResponse:
    found = services.get(caller=caller_of(request), **body.model_dump())
    made_at = found.made_at
    return _json(
        {
            "hit": found.answer is not None,
            "answer": found.answer,
            "scope": found.scope,
            "made_at": rfc3339(made_at) if made_at else None,
            "age_seconds": max(0, int((now() - made_at).total_seconds())) if made_at else None,
            "lease": found.lease or None,
            "retry_after": found.retry_after,
        }
    )


@router.put(
    "/answers", auth=AgentAuth(), summary="Keep an answer for an hour",
    description=(
        "`lease` is the one of the lookup that missed; without it, or when it has run out or the answers were purged "
        "since, `kept` is false. `made_from` has to be said: `customer` for whatever was made with that customer's "
        "data in view, else `public`: then neither question nor answer may name the customer (422). At most 256 KiB."
    ),
)  # fmt: skip
def keep(request: HttpRequest, body: Kept) -> HttpResponse:
    told = {**body.model_dump(), "lease": body.lease or ""}
    return _json({"kept": services.put(caller=caller_of(request), **told)})


def _json(body: dict[str, Any]) -> HttpResponse:
    response = HttpResponse(canonical_json(body), content_type="application/json; charset=utf-8")
    response["Cache-Control"] = "no-store"
    return response
