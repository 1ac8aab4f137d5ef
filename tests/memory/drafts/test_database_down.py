"""A real MariaDB killed or held up: what a draft's author hears, and what is there afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from config.base.clock import now
from guard.access.services import issue_key
from guard.audit.models import AuditLog
from memory.profiles.drafts import services
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision
from tests.memory.drafts.helpers import WEI_CALLS, make_approved, make_draft
from tests.memory.profiles.helpers import ALICE, WEI
from tests.services import MariaDB

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]  # a server of its own, killed
UNAVAILABLE = (503, "DATABASE_UNAVAILABLE")


@contextmanager
def away(server: MariaDB, how: str = "killed") -> Iterator[None]:
    server.kill() if how == "killed" else server.pause()
    try:
        yield
    finally:
        server.start() if how == "killed" else server.resume()
        connections.close_all()


class Asking:
    """The advisor's agent, whose key was seen of late: what is asked of the database is the draft alone."""

    def __init__(self, settings: Any) -> None:
        settings.PRINCIPAL_CACHE_SECONDS = 60.0
        self.headers = {"Authorization": f"Bearer {issue_key(agent='advisor').key}", "X-Actor-Id": WEI}

    def __call__(self, method: str, path: str, body: Any = None, version: int | None = None) -> Any:
        headers = {**self.headers, **({"If-Match": f'"{version}"'} if version else {})}
        return Client(raise_request_exception=False).generic(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else "",
            content_type="application/json", headers=headers,
        )  # fmt: skip

    def refusal(self, *asked: Any, **named: Any) -> tuple[int, str]:
        answer = self(*asked, **named)
        return answer.status_code, json.loads(answer.content).get("code", "")


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_every_door_says_503_and_nothing_is_half_written(own_database_server: MariaDB, settings: Any, how: str) -> None:
    ask = Asking(settings)
    draft = make_approved()
    assert ask("GET", "/drafts").status_code == 200
    rows = AuditLog.objects.filter(event_type="draft_review").count()
    words = {"kind": "message", "channel": "app", "body": "x", "customer_id": ALICE}
    with away(own_database_server, how):
        assert ask.refusal("GET", "/drafts") == UNAVAILABLE
        assert ask.refusal("GET", f"/drafts/{draft.draft_id}") == UNAVAILABLE
        assert ask.refusal("POST", "/drafts", words) == UNAVAILABLE
        sending = {"content_hash": draft.content_hash}
        assert ask.refusal("POST", f"/drafts/{draft.draft_id}/send", sending, version=draft.version) == UNAVAILABLE
    found = AdvisorDraft.objects.get()
    assert (found.review_status, found.version) == ("approved", draft.version)
    assert AdvisorDraftRevision.objects.count() == 1
    assert AuditLog.objects.filter(event_type="draft_review").count() == rows
    answer = ask("POST", f"/drafts/{draft.draft_id}/send", {"content_hash": draft.content_hash}, version=draft.version)
    assert answer.status_code == 200, answer.content
    assert [one["draft_id"] for one in json.loads(ask("GET", "/drafts").content)["items"]] == [draft.draft_id]


@pytest.mark.parametrize("at", ["UPDATE `advisor_draft`", "INSERT INTO `audit_log`"])
def test_killed_within_a_step_nothing_counts_as_sent(own_database_server: MariaDB, settings: Any, at: str) -> None:
    ask = Asking(settings)
    draft = make_approved()
    rows = AuditLog.objects.filter(event_type="draft_review").count()

    def kill(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(at):
            own_database_server.kill()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(kill):
        told = ask.refusal(
            "POST", f"/drafts/{draft.draft_id}/send", {"content_hash": draft.content_hash}, version=draft.version
        )
    assert told == UNAVAILABLE
    own_database_server.start()
    connections.close_all()
    found = AdvisorDraft.objects.get()
    assert (found.review_status, found.sent_at, found.version) == ("approved", None, draft.version)
    assert AuditLog.objects.filter(event_type="draft_review").count() == rows


def test_what_expires_meanwhile_expires_when_it_is_back(own_database_server: MariaDB) -> None:
    draft = make_draft(caller=WEI_CALLS)
    AdvisorDraft.objects.update(expires_at=now() - timedelta(seconds=1))
    with away(own_database_server), pytest.raises(Exception, match=r"connect|gone|Lost"):
        services.expire_drafts()
    assert services.expire_drafts() == 1
    assert AdvisorDraft.objects.get(pk=draft.pk).review_status == "expired"
    assert AuditLog.objects.filter(event_type="draft_review", decision="expired").count() == 1
