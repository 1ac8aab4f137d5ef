"""POST /inputs/inspect: what the guard says of a text. A dry run: nothing is kept, nobody is blocked."""

from __future__ import annotations

from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth
from guard.inputs.verdict import Verdict, inspect

router = Router(tags=["inputs"])


class InspectIn(Schema):
    """text: up to 8 MiB of UTF-8. role: who is said to speak; what a tool brings is judged harder. language: a hint."""

    model_config = ConfigDict(extra="forbid")
    text: str
    role: Literal["user", "assistant", "system", "tool"] = "user"
    language: str = Field(default="", max_length=35)


class SpanOut(Schema):
    start: int = Field(description="code points of the text as sent")
    end: int = Field(description="exclusive")
    kind: str
    rule: str


class VerdictOut(Schema):
    verdict: Literal["allow", "flag", "mask", "block", "ban"]
    score: int = Field(description="0-100, of attacks alone")
    rule_set: str
    spans: list[SpanOut]
    masked: str


def shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.outcome.value,
        "score": verdict.score,
        "rule_set": verdict.rule_set,
        "spans": [
            {"start": one.start, "end": one.end, "kind": one.kind, "rule": one.rule} for one in verdict.spans
        ],
        "masked": verdict.masked,
    }  # fmt: skip


@router.post("/inputs/inspect", auth=AgentAuth(), response=VerdictOut, summary="What the guard says of a text")
def inspect_route(request: HttpRequest, body: InspectIn) -> HttpResponse:
    """200 for every verdict. Stands outside rate and quota, blocks nobody and leaves no record."""
    size = len(body.text.encode("utf-8", "surrogatepass"))
    if size > settings.MAX_MESSAGE_BYTES:
        raise DomainError("MESSAGE_TOO_LARGE", f"the text is {size} bytes; the limit is {settings.MAX_MESSAGE_BYTES}")
    response = HttpResponse(
        canonical_json(shown(inspect(body.text, role=body.role))).encode(), content_type="application/json"
    )
    response["Cache-Control"] = "no-store"
    return response
