"""A real MariaDB killed or held up: an analyst hears that it is away, and never that there is nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from guard.access.services import issue_key
from guard.audit.models import AuditLog
from memory.profiles.queries import running
from memory.profiles.queries.models import AnalyticsQueryEnd, AnalyticsQueryLog
from memory.profiles.queries.selectors import entries
from tests.memory.drafts.test_database_down import UNAVAILABLE, away
from tests.memory.queries.helpers import make_facts
from tests.services import MariaDB

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]  # a server of its own, killed
COUNT = {"sql": "SELECT COUNT(*) FROM core_product"}


class Asking:
    def __init__(self, settings: Any) -> None:
        settings.PRINCIPAL_CACHE_SECONDS = 60.0
        self.headers = {"Authorization": f"Bearer {issue_key(agent='analyst').key}", "X-Actor-Id": "ana-1"}

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = Client(raise_request_exception=False).generic(
            method, f"/api/v1/analytics/queries{path}", json.dumps(body) if body is not None else "",
            content_type="application/json", headers=self.headers,
        )  # fmt: skip
        return answer.status_code, json.loads(answer.content)

    def refusal(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, found = self(method, path, body)
        return status, found.get("code", "")


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_every_door_says_503_and_nothing_is_written(own_database_server: MariaDB, settings: Any, how: str) -> None:
    make_facts()
    ask = Asking(settings)
    assert ask("POST", "", COUNT)[1]["rows"] == [[5]]
    with away(own_database_server, how):
        for asked in (("POST", "", COUNT), ("POST", "/check", COUNT), ("GET", "")):
            assert ask.refusal(*asked) == UNAVAILABLE
    assert (AnalyticsQueryLog.objects.count(), AnalyticsQueryEnd.objects.count()) == (1, 1)
    assert AuditLog.objects.filter(event_type="analytics_sql").count() == 1
    assert ask("POST", "", COUNT)[1]["rows"] == [[5]]
    assert len(ask("GET", "")[1]["items"]) == 2


def test_gone_while_a_statement_runs(own_database_server: MariaDB, settings: Any, monkeypatch: Any) -> None:
    """The row that was committed before it ran is there, and says that it never ended."""
    make_facts()
    ask = Asking(settings)
    original = running._reading

    def killed(*arguments: Any) -> Any:
        own_database_server.kill()
        return original(*arguments)

    monkeypatch.setattr(running, "_reading", killed)
    assert ask.refusal("POST", "", COUNT) == UNAVAILABLE
    monkeypatch.undo()
    own_database_server.start()
    connections.close_all()
    [entry] = entries(list(AnalyticsQueryLog.objects.all()))
    assert (entry.end, entry.log.decision) == (None, "allowed")
    entry.log.at -= timedelta(minutes=1)
    assert entry.state == "unfinished"
    assert AuditLog.objects.filter(event_type="analytics_sql", decision="allowed").count() == 1
    assert ask("POST", "", COUNT)[1]["rows"] == [[5]]
