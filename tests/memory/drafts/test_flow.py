"""A draft from the first word to the customer, and every way that must not lead there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.services import Caller
from guard.audit.models import AuditLog
from memory.profiles.drafts import selectors, services
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision
from memory.profiles.tasks import expire_waiting_drafts
from tests.memory.drafts.helpers import (
    OTHER_WORDS,
    WEI_CALLS,
    WORDS,
    make_approved,
    make_draft,
    make_reviewer,
    make_submitted,
)
from tests.memory.profiles.helpers import ALICE, WEI, make_assignment

pytestmark = pytest.mark.django_db


def refused(code: str, work: Any, *arguments: Any, **named: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        work(*arguments, **named)
    assert caught.value.code == code, caught.value
    return caught.value


def audited() -> list[tuple[str, str, str]]:
    rows = AuditLog.objects.filter(event_type="draft_review").order_by("id")
    return [(row.decision, row.actor_type, row.actor_id) for row in rows]


def send(draft: AdvisorDraft, content_hash: str = "", caller: Caller = WEI_CALLS) -> Any:
    return services.send_draft(
        caller=caller, draft_id=draft.draft_id, version=draft.version, content_hash=content_hash or draft.content_hash
    )


def revise(draft: AdvisorDraft, content: Content = OTHER_WORDS) -> AdvisorDraft:
    return services.revise_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version, content=content)


def test_written_submitted_approved_sent() -> None:
    rui = make_reviewer()
    draft, words = send(make_approved(rui))
    assert (draft.review_status, draft.version, words) == ("sent", 4, WORDS)
    assert audited() == [
        ("submitted", "agent", WEI), ("approved", "staff", "rui"), ("sent", "agent", WEI)
    ]  # fmt: skip
    assert [draft.draft_id] == [
        one.draft_id for one in selectors.drafts_of_customer(tenant="default", customer_id=ALICE)
    ]
    row = AuditLog.objects.filter(decision="sent").get()
    assert row.input_summary["content_hash"] == draft.content_hash
    assert ALICE not in str(row.input_summary)


def test_no_words_and_no_customer_in_the_audit() -> None:
    rui = make_reviewer()
    draft = make_submitted()
    services.reject_draft(by=rui, draft_id=draft.draft_id, version=2, reason="客户王女士不合适")
    for row in AuditLog.objects.all():
        told = f"{row.input_summary} {row.object_id} {row.actor_id} {row.on_behalf_of}"
        assert not any(word in told for word in (ALICE, "王女士", "example.com", "不合适")), told


def test_sent_is_the_end() -> None:
    draft, _words = send(make_approved())
    assert refused("DRAFT_STATUS", send, draft).extra["review_status"] == "sent"
    refused("DRAFT_STATUS", revise, draft)
    refused("DRAFT_STATUS", services.submit_draft, caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version)


def test_an_edit_voids_the_approval_and_what_was_approved_is_not_what_would_be_sent() -> None:
    draft = make_approved()
    edited = revise(draft)
    assert (edited.review_status, edited.approved_hash, edited.reviewed_by) == ("drafted", "", "")
    assert refused("VERSION_CONFLICT", send, draft).extra["current_version"] == edited.version
    refused("DRAFT_STATUS", send, edited, draft.content_hash)
    # and the former words again are a revision of their own, to be approved anew
    back = revise(edited, WORDS)
    assert (back.review_status, back.revision, back.content_hash) == ("drafted", 3, draft.content_hash)


@pytest.mark.parametrize(
    "change", [{"body": "x"}, {"recipient": "mallory@example.com"}, {"channel": "sms"}, {"subject": ""}]
)
def test_words_changed_past_the_services_are_not_sent(change: dict[str, str]) -> None:
    draft = make_approved()
    AdvisorDraftRevision.objects.filter(draft=draft).update(**change)
    refused("DRAFT_HASH_MISMATCH", send, draft)
    assert AdvisorDraft.objects.get().review_status == "approved"
    assert "sent" not in [decision for decision, *_who in audited()]


def test_words_of_one_draft_are_not_another_s() -> None:
    rui = make_reviewer()
    first, second = make_approved(rui), make_approved(rui)
    assert first.content_hash != second.content_hash
    refused("DRAFT_HASH_MISMATCH", send, first, second.content_hash)
    refused("DRAFT_HASH_MISMATCH", send, first, "0" * 64)


def test_the_same_words_change_nothing() -> None:
    draft = make_approved()
    same = revise(draft, WORDS)
    assert (same.review_status, same.version, same.revision) == ("approved", draft.version, 1)


def test_rejected_goes_back_by_a_new_revision_only() -> None:
    draft = make_submitted()
    reason = "too bold"
    rejected = services.reject_draft(by=make_reviewer(), draft_id=draft.draft_id, version=2, reason=reason)
    assert (rejected.review_status, rejected.review_reason) == ("rejected", reason)
    again: dict[str, Any] = {"caller": WEI_CALLS, "draft_id": draft.draft_id}
    refused("DRAFT_STATUS", services.submit_draft, version=rejected.version, **again)
    assert revise(rejected, WORDS).review_status == "rejected"
    edited = revise(rejected)
    assert services.submit_draft(version=edited.version, **again).review_status == "submitted"


def test_rejected_words_are_not_submitted_again_whatever_came_in_between() -> None:
    rui = make_reviewer()
    draft = make_submitted()
    rejected = services.reject_draft(by=rui, draft_id=draft.draft_id, version=draft.version, reason="too bold")
    back = revise(revise(rejected), WORDS)
    again: dict[str, Any] = {"caller": WEI_CALLS, "draft_id": draft.draft_id}
    refused("DRAFT_WORDS_REJECTED", services.submit_draft, version=back.version, **again)
    other = services.submit_draft(version=revise(back).version, **again)
    services.reject_draft(by=rui, draft_id=draft.draft_id, version=other.version, reason="still")
    both = revise(AdvisorDraft.objects.get(), Content("message", "app", "x"))
    for words in (WORDS, OTHER_WORDS):
        both = revise(both, words)
        refused("DRAFT_WORDS_REJECTED", services.submit_draft, version=both.version, **again)
    # Of another draft they are other words.
    assert make_submitted().review_status == "submitted"


def test_approval_is_of_what_was_read() -> None:
    draft = make_submitted()
    rui = make_reviewer()
    refused("DRAFT_HASH_MISMATCH", services.approve_draft, by=rui, draft_id=draft.draft_id, version=2, content_hash="x")
    refused("VERSION_CONFLICT", services.approve_draft, by=rui, draft_id=draft.draft_id, version=1, content_hash="x")
    refused("INVALID_REQUEST", services.reject_draft, by=rui, draft_id=draft.draft_id, version=2, reason="  ")


def approve(by: Any, draft: AdvisorDraft) -> AdvisorDraft:
    return services.approve_draft(
        by=by, draft_id=draft.draft_id, version=draft.version, content_hash=draft.content_hash
    )


# --- time -----------------------------------------------------------------------------------------------------------


def test_what_waits_too_long_expires_with_a_row_each_and_is_over_before_the_beat_has_come_by() -> None:
    rui = make_reviewer()
    approved, submitted, fresh = make_approved(rui), make_submitted(), make_draft()
    sent, _words = send(make_approved(rui))
    past = now() - timedelta(seconds=1)
    AdvisorDraft.objects.exclude(pk=fresh.pk).update(expires_at=past)
    refused("DRAFT_EXPIRED", send, approved)
    refused("DRAFT_EXPIRED", approve, rui, submitted)
    assert expire_waiting_drafts() == 2
    assert expire_waiting_drafts() == 0
    assert AdvisorDraft.objects.get(pk=sent.pk).review_status == "sent"
    assert AdvisorDraft.objects.get(pk=approved.pk).approved_hash == ""
    expired = AuditLog.objects.filter(decision="expired")
    assert {row.object_id for row in expired} == {approved.draft_id, submitted.draft_id}
    assert {row.actor_type for row in expired} == {"system"}
    refused("VERSION_CONFLICT", send, approved)
    refused("DRAFT_STATUS", send, AdvisorDraft.objects.get(pk=approved.pk), approved.content_hash)


def test_each_step_gives_new_time(settings: Any) -> None:
    draft = make_draft()
    before = draft.expires_at
    submitted = services.submit_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=1)
    assert submitted.expires_at - submitted.updated_at == timedelta(hours=settings.DRAFT_EXPIRY_HOURS)
    assert submitted.expires_at > before


def test_a_reason_says_what_it_shows() -> None:
    draft = make_submitted()
    for reason in ("\u200b", "no\x00", "a\u2028b", "\u202efine"):
        refused(
            "INVALID_REQUEST", services.reject_draft, by=make_reviewer(f"r{ord(reason[0])}{ord(reason[-1])}"),
            draft_id=draft.draft_id, version=draft.version, reason=reason,
        )  # fmt: skip
    services.reject_draft(by=make_reviewer(), draft_id=draft.draft_id, version=draft.version, reason="one\r\ntwo")


# Joiners that join no two emoji, and letters hidden behind a flag.
UNJOINED = ("a\u200db", "👩\u200d", "\u200d👩", "👩\u200da", "a\u200d👩", "👩\u200d\u200d💻", "🏴\U000e0067\U000e007f")
NOTHING_SEEN = ("\u200b\u200b", "\u3164", "\u2800 \u2800", "\u2060\ufeff", "\u0301", "\u115f\u1160", "\u00ad\n")
UNSEEN = ("\x85", "\u2028", "\u2029", "\u200b", "\u202e", "\x7f", "\t", "\ufeff")


# --- what may stand in one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (Content("poem", "app", "x"), "INVALID_REQUEST"),
        (Content("message", "pigeon", "x"), "INVALID_REQUEST"),
        (Content("message", "app", "  \n"), "INVALID_REQUEST"),
        *((Content("message", "app", body), "INVALID_REQUEST") for body in NOTHING_SEEN),
        (Content("message", "app", "\ud800"), "INVALID_REQUEST"),
        (Content("message", "app", "x", subject="a" * 201), "INVALID_REQUEST"),
        (Content("message", "email", "x", recipient="a@b.c\r\nBcc: all@b.c"), "INVALID_REQUEST"),
        *((Content("message", "email", "x", recipient=f"a{char}@b.c"), "INVALID_REQUEST") for char in UNSEEN),
        *((Content("message", "app", "x", subject=f"a{char}b"), "INVALID_REQUEST") for char in UNSEEN),
        *((Content("message", "app", "x", subject=text), "INVALID_REQUEST") for text in UNJOINED),
        (Content("message", "email", "x", recipient="👩\u200d💻@b.c"), "INVALID_REQUEST"),
        (Content("report", "app", "x" * (256 * 1024 + 1)), "BODY_TOO_LARGE"),
    ],
)
def test_what_may_not(content: Content, code: str) -> None:
    make_assignment()
    refused(code, services.create_draft, caller=WEI_CALLS, customer_id=ALICE, content=content)


def test_words_come_back_exactly() -> None:
    words = Content("report", "app", "𠮷 e\u0301 \x00 trailing  \n", "  é")
    draft = make_draft(words)
    assert selectors.read_draft(caller=WEI_CALLS, draft_id=draft.draft_id)[1] == words
    approved_hash = words.hash(draft_id=draft.draft_id, customer_id=ALICE)
    assert draft.content_hash == approved_hash


EMOJI = (
    "👩\u200d💻 本月", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "👩🏽\u200d⚕️", "❤️\u200d🔥", "🙂\u200d↔️",
)  # fmt: skip


@pytest.mark.parametrize("subject", EMOJI)
def test_emoji_of_several_are_one_sign(subject: str) -> None:
    draft = make_draft(Content("message", "app", "x", subject=subject))
    assert selectors.read_draft(caller=WEI_CALLS, draft_id=draft.draft_id)[1].subject == subject


def test_a_line_ends_in_one_way_whatever_the_writer_s_system_does() -> None:
    draft = make_draft(Content("message", "app", "one\r\ntwo\rthree\n"))
    words = Content("message", "app", "one\ntwo\nthree\n")
    assert selectors.read_draft(caller=WEI_CALLS, draft_id=draft.draft_id)[1] == words
    assert draft.content_hash == words.hash(draft_id=draft.draft_id, customer_id=ALICE)
    again = Content("message", "app", "one\ntwo\r\nthree\r\n")
    same = services.revise_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=1, content=again)
    assert (same.version, same.revision) == (1, 1)


def test_pages_by_key() -> None:
    made = [make_draft().draft_id for _each in range(5)]
    first = selectors.own_drafts(caller=WEI_CALLS, limit=2)
    second = selectors.own_drafts(caller=WEI_CALLS, limit=2, before=first.next or "")
    third = selectors.own_drafts(caller=WEI_CALLS, limit=2, before=second.next or "")
    found = [draft.draft_id for page in (first, second, third) for draft in page.items]
    assert (found, third.next) == (made[::-1], None)
    refused("INVALID_REQUEST", selectors.own_drafts, caller=WEI_CALLS, limit=201)
    refused("INVALID_REQUEST", selectors.own_drafts, caller=WEI_CALLS, review_status="lost")


def test_costs() -> None:
    draft = make_draft()
    caller = Caller("default", "advisor", WEI)
    with CaptureQueriesContext(connection) as queries:
        services.submit_draft(caller=caller, draft_id=draft.draft_id, version=1)
    told = [one["sql"] for one in queries if not one["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    told = [sql for sql in told if "customer_pseudonym" not in sql]  # audit's own, once in five seconds
    assert len(told) == 6, told  # the assignment is two of them: before the lock, and under it
    with CaptureQueriesContext(connection) as queries:
        selectors.own_drafts(caller=caller)
    assert len(queries) == 2
