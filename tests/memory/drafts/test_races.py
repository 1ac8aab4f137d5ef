"""Two at once: one wins, the other is told, and there is one audit row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connections

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.profiles.drafts import services
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision
from tests.memory.drafts.helpers import OTHER_WORDS, WEI_CALLS, make_approved, make_draft, make_reviewer, make_submitted

pytestmark = pytest.mark.django_db(transaction=True)


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each came to, an error's code included; all begin at the same moment."""
    barrier = threading.Barrier(len(works))
    answers: list[Any] = [None] * len(works)

    def run(place: int, work: Callable[[], Any]) -> None:
        try:
            barrier.wait(10)
            answers[place] = work()
        except DomainError as error:
            answers[place] = error.code
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def rows(decision: str) -> int:
    return AuditLog.objects.filter(event_type="draft_review", decision=decision).count()


def test_of_eight_senders_one_sends() -> None:
    draft = make_approved()

    def send() -> str:
        services.send_draft(
            caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version, content_hash=draft.content_hash
        )
        return "sent"

    answers = together(*[send] * 8)
    assert sorted(answers) == ["VERSION_CONFLICT"] * 7 + ["sent"]
    assert rows("sent") == 1


def test_an_edit_and_a_sending_at_once_never_send_what_was_not_approved() -> None:
    for _round in range(10):
        draft = make_approved(make_reviewer(f"rui-{_round}"))

        def send(draft: AdvisorDraft = draft) -> str:
            _row, words = services.send_draft(
                caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version, content_hash=draft.content_hash
            )
            assert words.hash(draft_id=draft.draft_id, customer_id=draft.customer_id) == draft.approved_hash
            return "sent"

        def edit(draft: AdvisorDraft = draft) -> str:
            services.revise_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version, content=OTHER_WORDS)
            return "edited"

        answers = together(send, edit)
        assert sorted(answers) in (["VERSION_CONFLICT", "sent"], ["VERSION_CONFLICT", "edited"])
        now = AdvisorDraft.objects.get(pk=draft.pk)
        assert now.review_status == ("sent" if "sent" in answers else "drafted")
        assert now.version == draft.version + 1


def test_of_an_approval_and_a_rejection_one_counts() -> None:
    draft = make_submitted()
    rui, hua = make_reviewer(), make_reviewer("hua")
    answers = together(
        lambda: (
            services.approve_draft(
                by=rui, draft_id=draft.draft_id, version=draft.version, content_hash=draft.content_hash
            ).review_status
        ),
        lambda: (
            services.reject_draft(
                by=hua, draft_id=draft.draft_id, version=draft.version, reason="too bold"
            ).review_status
        ),
    )
    assert answers.count("VERSION_CONFLICT") == 1
    assert rows("approved") + rows("rejected") == 1


def test_of_an_approval_and_an_edit_at_once_no_unread_words_are_approved() -> None:
    rui = make_reviewer()
    for _round in range(10):
        draft = make_submitted()
        asked: dict[str, Any] = {"draft_id": draft.draft_id, "version": draft.version}
        approve = partial(services.approve_draft, by=rui, content_hash=draft.content_hash, **asked)
        edit = partial(services.revise_draft, caller=WEI_CALLS, content=OTHER_WORDS, **asked)
        answers = together(approve, edit)
        assert answers.count("VERSION_CONFLICT") == 1
        now = AdvisorDraft.objects.get(pk=draft.pk)
        assert (now.review_status, now.approved_hash) in (("drafted", ""), ("approved", draft.content_hash))


def test_editors_at_once_make_one_revision() -> None:
    draft = make_draft()

    def edit() -> str:
        return services.revise_draft(
            caller=WEI_CALLS, draft_id=draft.draft_id, version=1, content=OTHER_WORDS
        ).review_status

    assert sorted(together(*[edit] * 6)) == ["VERSION_CONFLICT"] * 5 + ["drafted"]
    assert list(AdvisorDraftRevision.objects.values_list("number", flat=True).order_by("number")) == [1, 2]


def test_two_beats_expire_each_draft_once() -> None:
    for _each in range(12):
        make_submitted()
    AdvisorDraft.objects.update(expires_at="2020-01-01T00:00:00Z")
    done = together(*[lambda: services.expire_drafts(limit=4)] * 6)
    assert sum(done) + services.expire_drafts() == 12
    assert rows("expired") == 12
    assert set(AdvisorDraft.objects.values_list("review_status", flat=True)) == {"expired"}


def test_an_erasure_and_an_author_at_work_leave_nothing() -> None:
    from tests.memory.drafts.helpers import make_draft as again
    from tests.memory.erasure.helpers import erase, found_in_database
    from tests.memory.profiles.helpers import ALICE

    again()

    def write() -> str:
        for _each in range(20):
            again()
        return "written"

    answers = together(write, lambda: erase(ALICE)[0])
    assert answers[0] in ("CUSTOMER_ERASED", "written")
    assert not AdvisorDraft.objects.exists()
    assert [place for place in found_in_database(ALICE) if not place.startswith("core_")] == []
