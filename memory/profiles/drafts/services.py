"""Steps of a draft. Each is one transaction: the row under lock, its version compared, and its audit row.

    drafted -> submitted -> approved -> sent
                         -> rejected        a new revision leads back to drafted from submitted, approved, rejected
    any of the first four -> expired

Costs: a step is 4 SQL (the row, the row under lock, the write, the audit row), words 1 more; an advisor's 2 more (the
assignment, before the lock and under it), their review 1 more (whether the key is theirs).
No Redis. Of two at once one waits for the other's commit and then meets VERSION_CONFLICT or DRAFT_STATUS.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import new_id
from config.base.trace import current_trace_id
from guard.access.services import Caller
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.erasure.tombstones import refuse_erased
from memory.profiles.drafts import policies
from memory.profiles.drafts.content import MAX_REASON, Content, content_of, has_hidden
from memory.profiles.drafts.models import (
    OPEN,
    AdvisorDraft,
    AdvisorDraftRevision,
    ReviewerKind,
    ReviewStatus,
)

EXPIRE_AT_ONCE = 200
_NO_APPROVAL: dict[str, Any] = {
    "approved_hash": "", "reviewed_at": None, "reviewed_by": "", "reviewer_kind": "", "review_reason": "",
}  # fmt: skip


def create_draft(*, caller: Caller, customer_id: str, content: Content) -> AdvisorDraft:
    """A new draft, at version 1, revision 1.

    Errors: INVALID_ID, INVALID_REQUEST (422); AUTH_403_SCOPE, NOT_ASSIGNED (403); BODY_TOO_LARGE (413);
    CUSTOMER_ERASED (410).
    """
    policies.may_write_for(caller, customer_id)
    content = content.with_plain_lines()
    content.check()
    draft_id = new_id()
    digest = content.hash(draft_id=draft_id, customer_id=customer_id)

    def work() -> AdvisorDraft:
        with transaction.atomic():
            moment = now()
            draft = AdvisorDraft.objects.create(
                draft_id=draft_id, tenant=caller.tenant, advisor_id=caller.actor_id, customer_id=customer_id,
                content_hash=digest, trace_id=current_trace_id(), created_at=moment, updated_at=moment,
                expires_at=moment + _patience(),
            )  # fmt: skip
            _add_revision(draft, content)
            refuse_erased(caller.tenant, customer_id)
            return draft

    return retry_conflicts(work)


def revise_draft(*, caller: Caller, draft_id: str, version: int, content: Content) -> AdvisorDraft:
    """New words: the draft is drafted again, and an approval or rejection is void. The same words change nothing.

    Errors: as `create_draft`; DRAFT_NOT_FOUND (404), NOT_OWNER (403), VERSION_CONFLICT, DRAFT_EXPIRED, DRAFT_STATUS
    (409: what was sent or has expired stays as it was).
    """
    found = policies.find(caller.tenant, draft_id)
    policies.may_change(caller, found)
    content = content.with_plain_lines()
    content.check()

    def change(draft: AdvisorDraft) -> None:
        _expect(draft, *OPEN)
        digest = content.hash(draft_id=draft.draft_id, customer_id=draft.customer_id)
        if digest == draft.content_hash:
            return
        draft.revision += 1
        draft.content_hash = digest
        draft.submitted_at = None
        _set(draft, ReviewStatus.DRAFTED, **_NO_APPROVAL)
        _add_revision(draft, content)
        refuse_erased(draft.tenant, draft.customer_id)

    return _step(found, version, change, caller)


def submit_draft(*, caller: Caller, draft_id: str, version: int) -> AdvisorDraft:
    """drafted -> submitted. Errors: DRAFT_NOT_FOUND; AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED; VERSION_CONFLICT,
    DRAFT_STATUS, DRAFT_EXPIRED, DRAFT_WORDS_REJECTED (409)."""
    found = policies.find(caller.tenant, draft_id)
    policies.may_change(caller, found)

    def change(draft: AdvisorDraft) -> None:
        _expect(draft, ReviewStatus.DRAFTED)
        if draft.content_hash in draft.rejected_hashes:
            # Whatever other words the draft had in between.
            raise DomainError("DRAFT_WORDS_REJECTED")
        _set(draft, ReviewStatus.SUBMITTED, submitted_at=now())
        _audit(draft, Decision.SUBMITTED, caller)

    return _step(found, version, change, caller)


def approve_draft(*, by: Caller | User, draft_id: str, version: int, content_hash: str) -> AdvisorDraft:
    """submitted -> approved: these words and no others. content_hash: of what the reviewer has read.

    by: a person with `memory.review_advisordraft`, or another advisor (see policies). Errors: as `submit_draft`,
    FORBIDDEN, DRAFT_OWN_REVIEW (403), DRAFT_HASH_MISMATCH (409).
    """
    found = _found_by(by, draft_id)
    policies.may_review(by, found)

    def change(draft: AdvisorDraft) -> None:
        _expect(draft, ReviewStatus.SUBMITTED)
        if content_hash != draft.content_hash or _stored_hash(draft) != draft.content_hash:
            raise DomainError("DRAFT_HASH_MISMATCH")
        _set(draft, ReviewStatus.APPROVED, approved_hash=content_hash, review_reason="", **_reviewer(by))
        _audit(draft, Decision.APPROVED, by)

    return _step(found, version, change, by)


def reject_draft(*, by: Caller | User, draft_id: str, version: int, reason: str) -> AdvisorDraft:
    """submitted -> rejected. reason: 1 to 500 characters, for the author. Errors: as `approve_draft`, and
    INVALID_REQUEST (422)."""
    found = _found_by(by, draft_id)
    policies.may_review(by, found)
    reason = reason.strip()
    if has_hidden(reason, but="\t\r\n"):
        raise DomainError(
            "INVALID_REQUEST", "reason: it has a control, or a character that is not to be seen",
            errors=[{"field": "reason", "reason": "has a control, or a character that is not to be seen"}],
        )  # fmt: skip
    if not 1 <= len(reason) <= MAX_REASON or any(0xD800 <= ord(char) < 0xE000 for char in reason):
        raise DomainError(
            "INVALID_REQUEST", f"reason: say why, in 1 to {MAX_REASON} characters",
            errors=[{"field": "reason", "reason": f"needs 1 to {MAX_REASON} characters"}],
        )  # fmt: skip

    def change(draft: AdvisorDraft) -> None:
        _expect(draft, ReviewStatus.SUBMITTED)
        rejected = [*draft.rejected_hashes, draft.content_hash]
        _set(
            draft,
            ReviewStatus.REJECTED,
            approved_hash="",
            rejected_hashes=rejected,
            review_reason=reason,
            **_reviewer(by),
        )
        _audit(draft, Decision.REJECTED, by)

    return _step(found, version, change, by)


def send_draft(*, caller: Caller, draft_id: str, version: int, content_hash: str) -> tuple[AdvisorDraft, Content]:
    """approved -> sent, once. Gives back what to send: read, hashed again and found to be what was approved.

    content_hash: of what the caller is about to send. The row says `sent` before anything leaves: a caller that dies
    after the call has sent nothing, or sent it; nobody sends it twice.
    Errors: as `submit_draft`, and DRAFT_HASH_MISMATCH (409) for anything but what was approved.
    """
    found = policies.find(caller.tenant, draft_id)
    policies.may_change(caller, found)
    words: list[Content] = []

    def change(draft: AdvisorDraft) -> None:
        _expect(draft, ReviewStatus.APPROVED)
        content = content_of(_words(draft))
        stored = content.hash(draft_id=draft.draft_id, customer_id=draft.customer_id)
        if not draft.approved_hash or not content_hash == draft.approved_hash == draft.content_hash == stored:
            raise DomainError("DRAFT_HASH_MISMATCH")
        words[:] = [content]
        _set(draft, ReviewStatus.SENT, sent_at=now())
        _audit(draft, Decision.SENT, caller)

    return _step(found, version, change, caller), words[0]


def expire_drafts(*, limit: int = EXPIRE_AT_ONCE) -> int:
    """Expires up to `limit` drafts that waited too long, each with its audit row, in one transaction. How many.

    Rows that somebody is working on are left for the next time (SKIP LOCKED; SQLite has one writer anyway).
    """

    def work() -> int:
        with transaction.atomic():
            due = AdvisorDraft.objects.filter(review_status__in=OPEN, expires_at__lte=now())
            rows = list(due.select_for_update(skip_locked=_skips()).order_by("expires_at")[:limit])
            for draft in rows:
                _set(draft, ReviewStatus.EXPIRED, approved_hash="")
                draft.version += 1
                draft.save()
                _audit(draft, Decision.EXPIRED, None)
            return len(rows)

    return retry_conflicts(work)


# --- what they share --------------------------------------------------------------------------------------------


def _skips() -> bool:
    return transaction.get_connection().features.has_select_for_update_skip_locked


def _patience() -> timedelta:
    return timedelta(hours=settings.DRAFT_EXPIRY_HOURS)


def _found_by(by: Caller | User, draft_id: str) -> AdvisorDraft:
    if isinstance(by, User):
        from guard.access.roles import tenant_of

        return policies.find(tenant_of(by), draft_id)
    return policies.find(by.tenant, draft_id)


def _step(found: AdvisorDraft, version: int, change: Callable[[AdvisorDraft], None], by: Caller | User) -> AdvisorDraft:
    """1. lock the row; 2. is the customer still the advisor's; 3. compare its version; 4. change; 5. save the next
    version, if anything changed. A refusal at 2 is written down when the lock is gone, for its transaction goes too."""

    def work() -> AdvisorDraft:
        with transaction.atomic():
            draft = AdvisorDraft.objects.select_for_update().filter(pk=found.pk).first()
            if draft is None:  # erased meanwhile
                raise DomainError("DRAFT_NOT_FOUND")
            if isinstance(by, Caller) and not policies.still_assigned(by, draft):
                raise _NoLongerAssigned
            if draft.version != version:
                raise DomainError(
                    "VERSION_CONFLICT", f"the draft is at version {draft.version}, not at {version}",
                    current_version=draft.version, review_status=draft.review_status,
                )  # fmt: skip
            before = (draft.review_status, draft.revision)
            change(draft)
            if (draft.review_status, draft.revision) != before:
                draft.version += 1
                draft.trace_id = current_trace_id()
                draft.save()
            return draft

    try:
        return retry_conflicts(work)
    except _NoLongerAssigned:
        assert isinstance(by, Caller)
        raise policies.no_longer(by, found) from None


class _NoLongerAssigned(Exception):
    """Between the first look and the lock the customer went to another advisor."""


def _expect(draft: AdvisorDraft, *statuses: str) -> None:
    if draft.review_status not in statuses:
        raise DomainError(
            "DRAFT_STATUS", f"the draft is {draft.review_status}; this step needs {' or '.join(statuses)}",
            review_status=draft.review_status,
        )  # fmt: skip
    if draft.expires_at <= now():
        # Before the beat has come by: what is over is over.
        raise DomainError("DRAFT_EXPIRED", review_status=draft.review_status)


def _set(draft: AdvisorDraft, status: ReviewStatus, **values: Any) -> None:
    draft.review_status = status
    draft.updated_at = now()
    if status in OPEN:
        draft.expires_at = draft.updated_at + _patience()
    for name, value in values.items():
        setattr(draft, name, value)


def _reviewer(by: Caller | User) -> dict[str, Any]:
    if isinstance(by, User):
        return {"reviewed_at": now(), "reviewed_by": by.get_username()[:64], "reviewer_kind": ReviewerKind.STAFF}
    return {"reviewed_at": now(), "reviewed_by": by.actor_id, "reviewer_kind": ReviewerKind.ADVISOR}


def _words(draft: AdvisorDraft) -> AdvisorDraftRevision:
    return AdvisorDraftRevision.objects.get(draft_id=draft.draft_id, number=draft.revision)


def _stored_hash(draft: AdvisorDraft) -> str:
    return content_of(_words(draft)).hash(draft_id=draft.draft_id, customer_id=draft.customer_id)


def _add_revision(draft: AdvisorDraft, content: Content) -> None:
    AdvisorDraftRevision.objects.create(
        draft=draft, number=draft.revision, kind=content.kind, channel=content.channel, recipient=content.recipient,
        subject=content.subject, body=content.body, content_hash=draft.content_hash, trace_id=current_trace_id(),
    )  # fmt: skip


def _audit(draft: AdvisorDraft, decision: Decision, by: Caller | User | None) -> None:
    """One `draft_review` row. The hash stands for the words, which are in no log."""
    who: dict[str, Any] = {"actor_type": ActorType.SYSTEM, "actor_id": "memory.profiles.expire_drafts"}
    if isinstance(by, User):
        who = {"actor_type": ActorType.STAFF, "actor_id": by.get_username()[:64]}
    elif by is not None:
        who = {"actor_type": by.actor_type, "actor_id": by.actor_id, "agent": by.agent}
    record(
        tenant=draft.tenant,
        event_type=EventType.DRAFT_REVIEW,
        decision=decision,
        object_type=policies.OBJECT,
        object_id=draft.draft_id,
        input_summary={
            "customer_id": draft.customer_id,
            "author": draft.advisor_id,
            "revision": draft.revision,
            "content_hash": draft.content_hash,
        },
        **who,
    )
