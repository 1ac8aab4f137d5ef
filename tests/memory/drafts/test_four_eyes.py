"""Who reviews: nobody their own, whatever they are called, and whose customer it is while they do."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from config.base.clock import now
from guard.access.models import StaffMember
from guard.access.services import Caller, issue_key
from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment
from memory.profiles.drafts import policies, selectors, services
from memory.profiles.drafts.models import AdvisorDraft
from tests.memory.drafts.helpers import (
    LIN_CALLS,
    WEI_CALLS,
    WORDS,
    make_approved,
    make_bound,
    make_draft,
    make_reviewer,
    make_submitted,
)
from tests.memory.drafts.test_flow import approve, audited, refused, revise, send
from tests.memory.profiles.helpers import ALICE, BOB, LIN, WEI, make_assignment

pytestmark = pytest.mark.django_db


# Cyrillic and Greek letters, full width, no width, an accent, a space that does not break.
LOOK_ALIKES = [
    WEI.replace("e", "\u0435"), WEI.replace("i", "\u0456"), WEI.replace("e", "\u03b5"), WEI.replace("w", "\uff57"),
    f"{WEI[0]}\u200b{WEI[1:]}", f"{WEI}\u0301", f"{WEI}\u00a0", f"\u2060{WEI}", WEI.replace("e", "\u0415"),
]  # fmt: skip


@pytest.mark.parametrize("login", [WEI, WEI.upper(), f"{WEI[0].upper()}{WEI[1:]}", *LOOK_ALIKES])
def test_a_person_with_the_author_s_login_cannot_review(login: str) -> None:
    draft = make_submitted()
    refused("DRAFT_OWN_REVIEW", approve, make_reviewer(login), draft)
    assert AuditLog.objects.filter(event_type="authz", code="DRAFT_OWN_REVIEW").count() == 1


DRAWN_ALIKE = [
    ("A002", "AOO2"), ("A002", "aoo2"), ("a002", "\u13aa002"), ("a002", "\ua4ee002"), ("a002", "\u1d00002"),
    ("a002", "a\u0660\u0660\u0662"), ("a002", "a00\u31642"), ("a002", "a\u2800002"), ("lily", "Iily"),
    ("lily", "1i1y"), ("greg", "\u0261re\u0261"), ("lin", "\u0142in"), ("wei", "we\u03b9"), ("modern", "modem"),
    ("adv-wei", "adv\u2010wei"),
]  # fmt: skip
OTHERS = [
    ("a002", "a003"), ("lin", "lim"), ("wei", "wel"), ("rui", "rul"), ("sam", "fam"), ("adv-wei", "adv-lin"),
    ("\u5f20\u4e09", "\u674e\u56db"), ("nu", "vu"),
]  # fmt: skip


@pytest.mark.parametrize(("actor", "login"), DRAWN_ALIKE)
def test_names_that_are_drawn_alike_are_one_person_s(actor: str, login: str) -> None:
    assert policies.same_person(login, actor)
    assert policies.same_person(actor, login)


@pytest.mark.parametrize(("actor", "login"), OTHERS)
def test_names_that_are_told_apart_are_two(actor: str, login: str) -> None:
    assert not policies.same_person(login, actor)


@pytest.mark.parametrize("login", [f"{WEI}@firm.cn", f"{WEI.upper()}@FIRM.CN"])
def test_an_address_that_begins_with_the_author_s_id_is_the_author_s(login: str) -> None:
    draft = make_submitted()
    refused("DRAFT_OWN_REVIEW", approve, make_reviewer(login), draft)


def test_whoever_acts_as_the_author_cannot_review_whatever_their_login() -> None:
    draft = make_submitted()
    person = make_reviewer("m.wang@firm.cn")
    StaffMember.objects.filter(user=person).update(actor_id=WEI.upper())
    refused("DRAFT_OWN_REVIEW", approve, person, draft)
    StaffMember.objects.filter(user=person).update(actor_id="somebody-else")
    assert approve(person, draft).review_status == "approved"


def test_an_advisor_cannot_review_their_own_even_where_advisors_may(settings: Any) -> None:
    draft = make_submitted()
    settings.DRAFT_PEER_REVIEW = True
    refused("DRAFT_OWN_REVIEW", approve, WEI_CALLS, draft)


def test_another_advisor_reviews_only_where_the_firm_wishes_and_only_of_their_customers(settings: Any) -> None:
    draft = make_submitted()
    make_assignment(LIN, ALICE)
    refused("AUTH_403_SCOPE", approve, LIN_CALLS, draft)
    refused("NOT_OWNER", selectors.read_draft, caller=LIN_CALLS, draft_id=draft.draft_id)
    settings.DRAFT_PEER_REVIEW = True
    refused("NOT_ASSIGNED", approve, make_bound(Caller("default", "advisor", "adv-zhou")), draft)
    assert selectors.read_draft(caller=LIN_CALLS, draft_id=draft.draft_id)[1] == WORDS
    assert [one.pk for one in selectors.reviewable_drafts(caller=LIN_CALLS).items] == [draft.pk]
    # Whoever names the actor in a header may be Wei: by a key that is theirs alone, or not at all.
    refused("AUTH_403_SCOPE", approve, LIN_CALLS, draft)
    shared = issue_key(agent="advisor", tenant="default").principal.principal_id
    refused("AUTH_403_SCOPE", approve, Caller("default", "advisor", LIN, shared), draft)
    theirs = make_bound(LIN_CALLS)
    refused("DRAFT_OWN_REVIEW", approve, Caller("default", "advisor", WEI, theirs.principal_id), draft)
    assert approve(theirs, draft).reviewer_kind == "advisor"
    refused("NOT_OWNER", send, AdvisorDraft.objects.get(), caller=LIN_CALLS)


def test_what_is_not_submitted_yet_is_its_author_s(settings: Any) -> None:
    settings.DRAFT_PEER_REVIEW = True
    draft = make_draft()
    make_assignment(LIN, ALICE)
    refused("NOT_OWNER", selectors.read_draft, caller=LIN_CALLS, draft_id=draft.draft_id)
    assert selectors.reviewable_drafts(caller=LIN_CALLS).items == []
    assert selectors.reviewable_drafts(caller=LIN_CALLS, review_status="drafted").items == []


def test_people_without_the_role_and_superusers_do_not_review() -> None:
    from django.contrib.auth.models import User

    draft = make_submitted()
    refused("FORBIDDEN", approve, User.objects.create_user("guest", is_staff=True), draft)
    refused("FORBIDDEN", approve, User.objects.create_superuser("root"), draft)
    refused("DRAFT_NOT_FOUND", approve, make_reviewer("eve", tenant="east"), draft)
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden").count() == 2


def test_the_database_refuses_the_author_as_reviewer_too() -> None:
    draft = make_approved()
    for change in ({"reviewed_by": WEI}, {"approved_hash": "0" * 64}, {"content_hash": "0" * 64}, {"reviewed_by": ""}):
        with pytest.raises(IntegrityError), transaction.atomic():
            AdvisorDraft.objects.filter(pk=draft.pk).update(**change)


@pytest.mark.parametrize("agent", ["customer", "analyst", "risk"])
def test_other_agents_neither_write_nor_read(agent: str) -> None:
    draft = make_draft()
    caller = Caller("default", agent, ALICE if agent == "customer" else WEI)
    refused("AUTH_403_SCOPE", services.create_draft, caller=caller, customer_id=ALICE, content=WORDS)
    refused("AUTH_403_SCOPE", selectors.read_draft, caller=caller, draft_id=draft.draft_id)
    refused("AUTH_403_SCOPE", selectors.own_drafts, caller=caller)


def test_an_advisor_writes_for_assigned_customers_and_no_longer_than_they_are() -> None:
    refused("NOT_ASSIGNED", services.create_draft, caller=WEI_CALLS, customer_id=BOB, content=WORDS)
    assignment = make_assignment(WEI, BOB)
    draft = make_approved(customer_id=BOB)
    assignment.valid_to = now()
    assignment.save()
    gone = Caller("default", "advisor", WEI)  # another request
    refused("NOT_ASSIGNED", send, draft, caller=gone)
    assert selectors.own_drafts(caller=gone).items == []
    refused("DRAFT_NOT_FOUND", send, draft, caller=Caller("east", "advisor", WEI))


@pytest.mark.parametrize("step", ["send", "revise", "submit"])
def test_a_customer_who_goes_between_the_first_look_and_the_lock_is_gone(step: str, monkeypatch: Any) -> None:
    draft = make_draft() if step == "submit" else make_approved()
    may_change = policies.may_change

    def and_then_ends(caller: Caller, found: AdvisorDraft) -> None:
        may_change(caller, found)
        CoreAssignment.objects.update(valid_to=now())

    monkeypatch.setattr(policies, "may_change", and_then_ends)
    again: dict[str, Any] = {"caller": WEI_CALLS, "draft_id": draft.draft_id, "version": draft.version}
    steps: dict[str, Any] = {
        "send": lambda: send(draft), "revise": lambda: revise(draft), "submit": lambda: services.submit_draft(**again),
    }  # fmt: skip
    refused("NOT_ASSIGNED", steps[step])
    assert AdvisorDraft.objects.get().version == draft.version
    assert AuditLog.objects.filter(event_type="authz", code="NOT_ASSIGNED").count() == 1
    assert "sent" not in [decision for decision, *_who in audited()]
