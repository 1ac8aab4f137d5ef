"""HTTP routes of the drafts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict

from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, Policy, caller_of, refuse_body
from guard.access.matrix import Action
from guard.access.services import Caller
from guard.idempotency.http import checked_on_replay
from memory.profiles.drafts import policies, selectors, services
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.models import AdvisorDraft

router = Router(tags=["drafts"])

_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,9})"?\Z')
_CHANGES = (
    "`If-Match: <ETag>` is required: 409 VERSION_CONFLICT (with `current_version`) when the draft has changed since. "
)


class _Strict(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)


class ContentIn(_Strict):
    kind: str
    channel: str
    body: str
    subject: str = ""
    recipient: str = ""

    def content(self) -> Content:
        return Content(self.kind, self.channel, self.body, self.subject, self.recipient)


class DraftIn(ContentIn):
    customer_id: str


class HashIn(_Strict):
    content_hash: str


class ReasonIn(_Strict):
    reason: str


class ListIn(Schema):
    customer_id: str = ""
    review_status: str = ""
    to_review: bool = False
    before: str = ""
    limit: int = selectors.LIMIT


def _at_all(action: Action) -> Policy:
    return lambda caller, path: policies.may_at_all(caller, action)


def _read(caller: Caller, path: Mapping[str, Any]) -> None:
    policies.may_at_all(caller, "read")
    policies.may_read(caller, policies.find(caller.tenant, path["draft_id"]))


def _change(caller: Caller, path: Mapping[str, Any]) -> None:
    policies.may_at_all(caller, "write")
    policies.may_change(caller, policies.find(caller.tenant, path["draft_id"]))


def _review(caller: Caller, path: Mapping[str, Any]) -> None:
    policies.may_at_all(caller, "read")
    policies.may_review(caller, policies.find(caller.tenant, path["draft_id"]))


@router.post(
    "/drafts", auth=AgentAuth(_at_all("write")), summary="Write a draft for an assigned customer",
    description="`kind`: message, proposal, report. `channel`: app, email, sms, phone, letter. Answers 201.",
)  # fmt: skip
@checked_on_replay(lambda caller, body: policies.may_write_for(caller, body.customer_id))
def create(request: HttpRequest, body: DraftIn) -> HttpResponse:
    draft = services.create_draft(caller=caller_of(request), customer_id=body.customer_id, content=body.content())
    return _answer(draft, body.content().with_plain_lines(), status=201)


@router.get(
    "/drafts", auth=AgentAuth(_at_all("read")), summary="Own drafts, or those to review",
    description=(
        "Newest first, without the words; `next` is the `before` of the following page. `to_review=true`: what other "
        "advisors submitted for one's customers, where the installation lets advisors review."
    ),
)  # fmt: skip
def listed(request: HttpRequest, query: Query[ListIn]) -> HttpResponse:
    read = selectors.reviewable_drafts if query.to_review else selectors.own_drafts
    page = read(
        caller=caller_of(request), customer_id=query.customer_id, review_status=query.review_status,
        before=query.before, limit=query.limit,
    )  # fmt: skip
    return _json({"items": [selectors.document(draft) for draft in page.items], "next": page.next})


@router.get("/drafts/{draft_id}", auth=AgentAuth(_read), summary="A draft with its words")
def get(request: HttpRequest, draft_id: str) -> HttpResponse:
    response = _answer(*selectors.read_draft(caller=caller_of(request), draft_id=draft_id))
    response["Cache-Control"] = "no-store"
    return response


@router.put(
    "/drafts/{draft_id}", auth=AgentAuth(_change), summary="Replace the words",
    description=f"{_CHANGES}The draft is drafted again and an approval is void; the same words change nothing.",
)  # fmt: skip
def revise(request: HttpRequest, draft_id: str, body: ContentIn) -> HttpResponse:
    draft = services.revise_draft(
        caller=caller_of(request), draft_id=draft_id, version=_version(request), content=body.content()
    )
    return _answer(draft, body.content().with_plain_lines())


@router.post("/drafts/{draft_id}/submit", auth=AgentAuth(_change), summary="Submit it", description=_CHANGES)
def submit(request: HttpRequest, draft_id: str) -> HttpResponse:
    refuse_body(request)
    return _answer(services.submit_draft(caller=caller_of(request), draft_id=draft_id, version=_version(request)))


@router.post(
    "/drafts/{draft_id}/approve", auth=AgentAuth(_review), summary="Approve another advisor's draft",
    description=f"{_CHANGES}`content_hash`: of the words that were read. Where the installation lets advisors review.",
)  # fmt: skip
def approve(request: HttpRequest, draft_id: str, body: HashIn) -> HttpResponse:
    return _answer(
        services.approve_draft(
            by=caller_of(request), draft_id=draft_id, version=_version(request), content_hash=body.content_hash
        )
    )


@router.post(
    "/drafts/{draft_id}/reject", auth=AgentAuth(_review), summary="Reject another advisor's draft",
    description=_CHANGES,
)  # fmt: skip
def reject(request: HttpRequest, draft_id: str, body: ReasonIn) -> HttpResponse:
    return _answer(
        services.reject_draft(by=caller_of(request), draft_id=draft_id, version=_version(request), reason=body.reason)
    )


@router.post(
    "/drafts/{draft_id}/send", auth=AgentAuth(_change), summary="Take the approved words to send them, once",
    description=(
        f"{_CHANGES}`content_hash`: of what is about to be sent; anything but what was approved is 409 "
        "DRAFT_HASH_MISMATCH. Answers the words; a second call is 409. Send an Idempotency-Key to be told again."
    ),
)  # fmt: skip
def send(request: HttpRequest, draft_id: str, body: HashIn) -> HttpResponse:
    return _answer(
        *services.send_draft(
            caller=caller_of(request), draft_id=draft_id, version=_version(request), content_hash=body.content_hash
        )
    )


def _version(request: HttpRequest) -> int:
    header = request.headers.get("If-Match", "").strip()
    found = _VERSION.match(header)
    if not found:
        said = f"{header[:40]!r} is no ETag of a draft" if header else "it is missing"
        raise DomainError("INVALID_REQUEST", f'If-Match: {said}; send the draft\'s ETag, such as "3"')
    return int(found[1])


def _json(body: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(canonical_json(body), content_type="application/json; charset=utf-8", status=status)


def _answer(draft: AdvisorDraft, content: Content | None = None, *, status: int = 200) -> HttpResponse:
    response = _json(selectors.document(draft, content), status)
    response["ETag"] = f'"{draft.version}"'
    return response
