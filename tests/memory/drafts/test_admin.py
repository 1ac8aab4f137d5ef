"""The review page: who reads, who decides, and that every look and every refusal is on record."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from guard.audit.models import AuditLog
from memory.profiles.drafts import services
from memory.profiles.drafts.models import AdvisorDraft
from tests.memory.drafts.helpers import OTHER_WORDS, WEI_CALLS, make_draft, make_reviewer, make_submitted
from tests.memory.profiles.helpers import ALICE, WEI
from tests.risk.console.make import make_auditor, make_client, make_officer, make_operator

pytestmark = pytest.mark.django_db

LIST = "/admin/memory/advisordraft/"


def page(draft: AdvisorDraft, act: str = "change") -> str:
    return f"{LIST}{draft.pk}/{act}/"


def rows(event_type: str) -> list[tuple[str, str]]:
    return list(AuditLog.objects.filter(event_type=event_type).order_by("id").values_list("decision", "actor_id"))


def act(client: Client, draft: AdvisorDraft, name: str, **more: str) -> Any:
    fields = {"version": str(draft.version), "content_hash": draft.content_hash, **more}
    return client.post(page(draft, name), fields)


def test_a_reviewer_reads_and_approves() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer())
    listed = client.get(f"{LIST}?review_status__exact=submitted").content.decode()
    assert draft.pk[-12:] in listed
    assert ALICE not in listed
    shown = client.get(page(draft)).content.decode()
    assert "您的组合本月上涨" in shown
    assert ALICE not in shown
    assert "alice@example.com" not in shown
    assert rows("unmask") == [("granted", "rui")]
    assert act(client, draft, "approve").status_code == 302
    assert AdvisorDraft.objects.get().review_status == "approved"
    assert rows("draft_review")[-1] == ("approved", "rui")


def test_a_rejection_needs_a_reason_and_keeps_what_was_typed() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer())
    assert act(client, draft, "reject", reason=" ").status_code == 422
    answer = act(client, draft, "reject", reason="x" * 600)
    assert (answer.status_code, AdvisorDraft.objects.get().review_status) == (422, "submitted")
    assert act(client, draft, "reject", reason="太激进").status_code == 302
    assert AdvisorDraft.objects.get().review_reason == "太激进"


def test_whoever_comes_late_is_told() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer())
    services.revise_draft(caller=WEI_CALLS, draft_id=draft.pk, version=draft.version, content=OTHER_WORDS)
    answer = act(client, draft, "approve")
    assert answer.status_code == 409
    assert "changed since you opened it" in answer.content.decode()
    assert AdvisorDraft.objects.get().review_status == "drafted"


def test_differences_between_revisions() -> None:
    draft = make_draft()
    draft = services.revise_draft(caller=WEI_CALLS, draft_id=draft.pk, version=1, content=OTHER_WORDS)
    shown = make_client(make_reviewer()).get(page(draft)).content.decode()
    assert "<del>亲爱的王女士:您的组合本月上涨 1.2%。</del>" in shown
    assert "<ins>亲爱的王女士:请买入。</ins>" in shown


def test_words_are_escaped() -> None:
    from dataclasses import replace

    draft = make_submitted(content=replace(OTHER_WORDS, body="<script>alert(1)</script>", subject="<b>x</b>"))
    shown = make_client(make_reviewer()).get(page(draft)).content.decode()
    assert "<script>alert(1)" not in shown
    assert "<b>x</b>" not in shown


def test_others_do_not_read_the_words_and_do_not_decide() -> None:
    draft = make_submitted()
    auditor = make_client(make_auditor())
    shown = auditor.get(page(draft)).content.decode()
    assert "王女士" not in shown
    assert ALICE not in shown
    for client in (auditor, make_client(make_officer()), make_client(make_operator())):
        for name in ("approve", "reject", "unmask"):
            before = AuditLog.objects.count()
            # An officer may unmask customers, but knows no drafts.
            assert act(client, draft, name, reason="because of it").status_code in (403, 404), name
            assert AuditLog.objects.count() == before + 1
    for client in (make_client(make_officer("zhang")), make_client(make_operator("ops-2"))):
        assert client.get(page(draft)).status_code == 403
        assert client.get(LIST).status_code == 403
    assert AdvisorDraft.objects.get().review_status == "submitted"


def test_its_author_cannot_decide_here_either() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer(WEI))
    assert "somebody else reviews it" in client.get(page(draft)).content.decode()
    assert act(client, draft, "approve").status_code == 403


def test_unmasking_takes_a_reason_and_is_on_record() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer())
    assert client.post(page(draft, "unmask"), {"reason": "x"}).status_code == 422
    shown = client.post(page(draft, "unmask"), {"reason": "is it the right address?"})
    assert "no-store" in shown["Cache-Control"]
    assert ALICE in shown.content.decode()
    assert "alice@example.com" in shown.content.decode()
    row = AuditLog.objects.filter(
        event_type="unmask", decision="granted", input_summary__contains="right address"
    ).get()
    assert ALICE not in str(row.input_summary)


def test_another_tenant_s_does_not_exist() -> None:
    draft = make_submitted()
    client = make_client(make_reviewer("eve", tenant="east"))
    assert draft.pk[-12:] not in client.get(LIST).content.decode()
    assert client.get(page(draft)).status_code == 302
    assert act(client, draft, "approve").status_code == 404
    assert client.post(page(draft, "unmask"), {"reason": "curious about it"}).status_code == 404


def test_posts_are_protected() -> None:
    draft = make_submitted()
    make_reviewer()
    strict = Client(enforce_csrf_checks=True)
    strict.login(username="rui", password="x")
    assert strict.post(page(draft, "approve"), {"version": "2"}).status_code == 403


def test_queries_do_not_grow(django_assert_max_num_queries: Any) -> None:
    client = make_client(make_reviewer())
    for _each in range(20):
        make_draft()
    with django_assert_max_num_queries(9):
        assert client.get(LIST).status_code == 200
