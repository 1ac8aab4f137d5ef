"""Reads of drafts: an advisor's own, what another may review, a customer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from memory.core.models import CoreAssignment
from memory.profiles.drafts import policies
from memory.profiles.drafts.content import Content, content_of
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision, ReviewStatus

LIMIT, MOST = 20, 200
Document = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """items: newest first. next: `before` of the following page, None at the end."""

    items: Sequence[AdvisorDraft]
    next: str | None


def read_draft(*, caller: Caller, draft_id: str) -> tuple[AdvisorDraft, Content]:
    """The draft with its newest words. 2 SQL, an assignment 1 more.

    Errors: INVALID_ID (422), DRAFT_NOT_FOUND (404), AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403).
    """
    draft = policies.find(caller.tenant, draft_id)
    policies.may_read(caller, draft)
    return draft, content_of(draft.revisions.get(number=draft.revision))


def own_drafts(
    *, caller: Caller, customer_id: str = "", review_status: str = "", before: str = "", limit: int = LIMIT
) -> Page:
    """The caller's own drafts, of customers who are theirs now. 2 SQL.

    Errors: INVALID_ID, INVALID_REQUEST (422), AUTH_403_SCOPE, NOT_ASSIGNED (403).
    """
    policies.may_at_all(caller, "read")
    rows = AdvisorDraft.objects.filter(tenant=caller.tenant, advisor_id=caller.actor_id)
    return _page(caller, rows, Resource.DRAFT, customer_id, review_status, before, limit)


def reviewable_drafts(
    *, caller: Caller, customer_id: str = "", review_status: str = "", before: str = "", limit: int = LIMIT
) -> Page:
    """What others wrote for the caller's customers and submitted, where advisors may review at all. 2 SQL.

    review_status: submitted by default. Errors: as `own_drafts`.
    """
    policies.may_at_all(caller, "read")
    if not _may_review_at_all(caller):
        authorize(caller, Resource.DRAFT_REVIEW, "read", customer_id=customer_id or caller.actor_id)
    wanted = review_status or ReviewStatus.SUBMITTED.value
    rows = AdvisorDraft.objects.filter(tenant=caller.tenant).exclude(advisor_id=caller.actor_id)
    rows = rows.exclude(review_status=ReviewStatus.DRAFTED)
    return _page(caller, rows, Resource.DRAFT_REVIEW, customer_id, wanted, before, limit)


def drafts_of_customer(*, tenant: str, customer_id: str, limit: int = LIMIT) -> list[AdvisorDraft]:
    """For the customer page of the console, newest first, without words. 1 SQL."""
    rows = AdvisorDraft.objects.filter(tenant=tenant, customer_id=customer_id)
    return list(rows.order_by("-draft_id")[:limit])


def revisions_of(draft: AdvisorDraft) -> list[AdvisorDraftRevision]:
    """All revisions, oldest first. 1 SQL."""
    return list(draft.revisions.order_by("number"))


def _may_review_at_all(caller: Caller) -> bool:
    from guard.access.matrix import scope_of

    return scope_of(caller.agent, Resource.DRAFT_REVIEW, "read") is not None


def _page(
    caller: Caller, rows: QuerySet[AdvisorDraft], resource: Resource, customer_id: str, review_status: str,
    before: str, limit: int,
) -> Page:  # fmt: skip
    if not 1 <= limit <= MOST:
        raise DomainError("INVALID_REQUEST", f"limit: {limit} is outside 1 to {MOST}")
    if review_status:
        if review_status not in ReviewStatus.values:
            raise DomainError("INVALID_REQUEST", f"review_status: use one of {', '.join(ReviewStatus.values)}")
        rows = rows.filter(review_status=review_status)
    if customer_id:
        check_id("customer_id", customer_id)
        authorize(caller, resource, "read", object_id=customer_id, customer_id=customer_id)
        rows = rows.filter(customer_id=customer_id)
    else:
        # The core may be another server: ids come here, not a join.
        rows = rows.filter(customer_id__in=_assigned_customers(caller))
    if before:
        rows = rows.filter(draft_id__lt=check_id("before", before))
    items = list(rows.order_by("-draft_id")[: limit + 1])
    return Page(items[:limit], items[limit - 1].draft_id if len(items) > limit else None)


def _assigned_customers(caller: Caller) -> list[str]:
    moment = now()
    rows = CoreAssignment.objects.filter(tenant=caller.tenant, advisor_id=caller.actor_id, valid_from__lte=moment)
    rows = rows.filter(Q(valid_to=None) | Q(valid_to__gt=moment))
    return sorted(set(rows.values_list("customer_id", flat=True)))


def document(draft: AdvisorDraft, content: Content | None = None) -> Document:
    """A draft as JSON; with its words where they are given."""
    shown: Document = {
        "draft_id": draft.draft_id,
        "customer_id": draft.customer_id,
        "advisor_id": draft.advisor_id,
        "review_status": draft.review_status,
        "version": draft.version,
        "revision": draft.revision,
        "content_hash": draft.content_hash,
        "approved_hash": draft.approved_hash or None,
        "reviewed_by": draft.reviewed_by or None,
        "reviewer_kind": draft.reviewer_kind or None,
        "review_reason": draft.review_reason or None,
        **{
            name: rfc3339(value) if (value := getattr(draft, name)) else None
            for name in ("created_at", "updated_at", "expires_at", "submitted_at", "reviewed_at", "sent_at")
        },
    }
    if content is not None:
        shown |= {
            "kind": content.kind,
            "channel": content.channel,
            "recipient": content.recipient,
            "subject": content.subject,
            "body": content.body,
        }
    return shown
