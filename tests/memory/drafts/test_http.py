"""Drafts over HTTP: who may is decided before the body is read, and each change names the version it means."""

from __future__ import annotations

from typing import Any

import pytest

from config.base.clock import now
from guard.access.services import issue_key
from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment
from memory.profiles.drafts.models import AdvisorDraft
from tests.memory.drafts.helpers import make_reviewer
from tests.memory.drafts.test_flow import approve
from tests.memory.erasure.helpers import erase, found_in_redis
from tests.memory.profiles.helpers import ALICE, BOB, LIN, WEI, Agent, make_agent, make_assignment

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = {"kind": "proposal", "channel": "email", "recipient": "a@b.c", "subject": "方案", "body": "建议持有。"}


@pytest.fixture
def wei() -> Any:
    make_assignment(WEI, ALICE)
    return make_agent("advisor", WEI)


def problem(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"].startswith("application/problem+json")
    return answer.status_code, answer.json()["code"]


def write(wei: Any, **more: Any) -> Any:
    answer = wei.call("POST", "/drafts", {"customer_id": ALICE, **WORDS, **more})
    assert answer.status_code == 201, answer.content
    return answer


def test_from_the_first_word_to_the_customer(wei: Any) -> None:
    made = write(wei)
    draft = made.json()
    assert (made["ETag"], draft["review_status"], draft["version"]) == ('"1"', "drafted", 1)
    path = f"/drafts/{draft['draft_id']}"
    assert problem(wei.call("POST", f"{path}/submit")) == (422, "INVALID_REQUEST")  # no If-Match
    assert problem(wei.call("POST", f"{path}/submit", **{"If-Match": "*"})) == (422, "INVALID_REQUEST")
    assert problem(wei.call("POST", f"{path}/submit", **{"If-Match": '"7"'})) == (409, "VERSION_CONFLICT")
    submitted = wei.call("POST", f"{path}/submit", **{"If-Match": made["ETag"]})
    assert (submitted.status_code, submitted["ETag"], submitted.json()["review_status"]) == (200, '"2"', "submitted")
    assert "body" not in submitted.json()
    approve(make_reviewer(), AdvisorDraft.objects.get())
    read = wei.get(path)
    assert read.json()["body"] == WORDS["body"]
    assert read["Cache-Control"] == "no-store"
    # Another's hash is refused, and the draft stays approved.
    match = {"If-Match": read["ETag"]}
    assert problem(wei.call("POST", f"{path}/send", {"content_hash": "0" * 64}, **match)) == (
        409, "DRAFT_HASH_MISMATCH",
    )  # fmt: skip
    body = {"content_hash": read.json()["approved_hash"]}
    once = {**match, "Idempotency-Key": "send-1"}
    sent = wei.call("POST", f"{path}/send", body, **once)
    assert {name: sent.json()[name] for name in WORDS} == WORDS
    again = wei.call("POST", f"{path}/send", body, **once)
    assert (again.status_code, again["Idempotent-Replayed"], again.content) == (200, "true", sent.content)
    assert problem(wei.call("POST", f"{path}/send", body, **{"If-Match": sent["ETag"]})) == (409, "DRAFT_STATUS")
    assert AuditLog.objects.filter(event_type="draft_review", decision="sent").count() == 1


def test_who_may_not_is_refused_before_the_body_is_read(wei: Any) -> None:
    path = f"/drafts/{write(wei).json()['draft_id']}"
    no_json = b"{not json"
    lin, analyst = make_agent("advisor", LIN), make_agent("analyst")
    assert problem(analyst.call("POST", "/drafts", no_json)) == (403, "AUTH_403_SCOPE")
    assert problem(lin.call("PUT", path, no_json, **{"If-Match": '"1"'})) == (403, "NOT_OWNER")
    assert problem(lin.call("POST", f"{path}/approve", no_json)) == (403, "AUTH_403_SCOPE")
    assert problem(wei.call("POST", f"{path}/approve", no_json)) == (403, "DRAFT_OWN_REVIEW")
    assert problem(wei.call("PUT", path, no_json, **{"If-Match": '"1"'})) == (400, "INVALID_JSON")
    assert problem(wei.get("/drafts/none")) == (404, "DRAFT_NOT_FOUND")
    assert problem(make_agent("advisor", WEI, tenant="east").get(path)) == (404, "DRAFT_NOT_FOUND")
    assert problem(wei.call("POST", "/drafts", {"customer_id": BOB, **WORDS})) == (403, "NOT_ASSIGNED")


def test_bodies_are_strict(wei: Any) -> None:
    for more in ({"review_status": "approved"}, {"body": 7}, {"approved_hash": "x"}, {"kind": "poem"}):
        assert problem(wei.call("POST", "/drafts", {"customer_id": ALICE, **WORDS, **more})) == (
            422, "INVALID_REQUEST",
        )  # fmt: skip


def test_lists(wei: Any) -> None:
    made = [write(wei).json()["draft_id"] for _each in range(3)]
    page = wei.get("/drafts?limit=2").json()
    assert [one["draft_id"] for one in page["items"]] == made[:0:-1]
    rest = wei.get(f"/drafts?limit=2&before={page['next']}").json()
    assert ([one["draft_id"] for one in rest["items"]], rest["next"]) == (made[:1], None)
    assert wei.get("/drafts?review_status=sent").json()["items"] == []
    assert problem(wei.get(f"/drafts?customer_id={BOB}")) == (403, "NOT_ASSIGNED")
    assert problem(wei.get("/drafts?to_review=true")) == (403, "AUTH_403_SCOPE")


def test_what_was_answered_is_not_told_again_when_the_customer_is_no_longer_theirs(wei: Any) -> None:
    body = {"customer_id": ALICE, **WORDS, "body": "one\r\ntwo"}
    once = {"Idempotency-Key": "post-1"}
    first = wei.call("POST", "/drafts", body, **once)
    assert first.json()["body"] == "one\ntwo"  # as it is stored and hashed
    again = wei.call("POST", "/drafts", body, **once)
    assert (again.status_code, again["Idempotent-Replayed"], again.content) == (201, "true", first.content)
    CoreAssignment.objects.update(valid_to=now())
    answer = wei.call("POST", "/drafts", body, **once)
    assert problem(answer) == (403, "NOT_ASSIGNED")
    assert b"two" not in answer.content
    assert AdvisorDraft.objects.count() == 1


def test_advisors_review_over_http_with_a_key_of_their_own(wei: Any, settings: Any) -> None:
    settings.DRAFT_PEER_REVIEW = True
    make_assignment(LIN, ALICE)
    made = write(wei)
    path = f"/drafts/{made.json()['draft_id']}"
    wei.call("POST", f"{path}/submit", **{"If-Match": made["ETag"]})
    body = {"content_hash": made.json()["content_hash"]}
    by_header = Agent(wei.key, LIN)
    assert problem(by_header.call("POST", f"{path}/approve", body, **{"If-Match": '"2"'})) == (403, "AUTH_403_SCOPE")
    lin = Agent(issue_key(agent="advisor", tenant="default", actor_id=LIN).key, LIN)
    assert lin.call("POST", f"{path}/approve", body, **{"If-Match": '"2"'}).status_code == 200


def test_an_erased_customer_s_kept_answers_go_too(wei: Any) -> None:
    draft = write(wei).json()
    path = f"/drafts/{draft['draft_id']}"
    changed = {**WORDS, "body": "secret words of the draft"}
    wei.call("PUT", path, changed, **{"If-Match": '"1"', "Idempotency-Key": "put-1"})
    assert found_in_redis("secret words")
    assert erase(ALICE)[0] == 0
    assert found_in_redis("secret words") == []
    assert not AdvisorDraft.objects.exists()
    assert problem(wei.get(path)) == (404, "DRAFT_NOT_FOUND")
    assert problem(wei.call("POST", "/drafts", {"customer_id": ALICE, **WORDS})) == (410, "CUSTOMER_ERASED")
