"""Health, metrics and doctor: what they say when all is well, and when something is not."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from config import checks
from config.base.clock import now
from config.base.redis import state
from guard.audit import triggers
from guard.audit.sealing import seal_waiting
from guard.audit.services import record
from memory.sessions.keys import PENDING
from risk.alerts.models import AlertOutbox
from tests.services import RedisServer

# The checks run in threads with connections of their own, which see only what is committed.
pytestmark = pytest.mark.django_db(transaction=True)


def ready(client: Client) -> tuple[int, dict[str, Any]]:
    answer = client.get("/health/ready")
    return answer.status_code, answer.json()


def test_all_is_well(client: Client, own_redis_server: RedisServer) -> None:
    status, body = ready(client)
    assert (status, body["status"], body["reasons"]) == (200, "ready", [])
    assert set(body["checks"]) == {"database", "audit_triggers", "audit_rows", "redis", "worker_lag", "outbox_lag"} | {
        "outbox_set_aside", "audit_seals", "audit_losses", "rule_figures", "alert_rows", "notifications",
    }  # fmt: skip
    assert body["warnings"] == []
    assert client.get("/health/live").content == b"ok"
    assert client.post("/health/live").status_code == 405


def test_redis_away(client: Client, own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    status, body = ready(client)
    assert status == 503
    assert [reason.split(":")[0] for reason in body["reasons"]] == ["redis", "worker_lag"]
    assert "ConnectionError" in body["reasons"][0]
    assert client.get("/health/live").status_code == 200


def test_redis_that_hangs_is_told_within_seconds(client: Client, own_redis_server: RedisServer) -> None:
    own_redis_server.pause()
    began = time.monotonic()
    status, _body = ready(client)
    own_redis_server.resume()
    assert status == 503
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru"), ("appendonly", "no", "AOF is off")],
)
def test_redis_that_may_forget(
    client: Client, own_redis_server: RedisServer, setting: str, value: str, reason: str
) -> None:
    own_redis_server.client().config_set(setting, value)
    status, body = ready(client)
    assert status == 503
    assert reason in body["reasons"][0]


def test_a_message_that_waits_too_long(client: Client, own_redis_server: RedisServer, settings: Any) -> None:
    seconds, _micros = own_redis_server.client().time()
    state().xadd(PENDING(), {"a": "1"}, id=f"{(seconds - 100) * 1000}-0")
    status, body = ready(client)
    assert status == 503
    assert body["reasons"][0].startswith("worker_lag: the oldest message not yet in the database is 10")
    settings.READY_MAX_WORKER_LAG = 200.0
    assert ready(client)[0] == 200


def test_an_event_that_waits_too_long(client: Client, own_redis_server: RedisServer) -> None:
    AlertOutbox.objects.create(kind="update", alert_id="A-1", created_at=now() - timedelta(seconds=99))
    AlertOutbox.objects.create(kind="update", alert_id="A-2", published_at=now(), seq=1)
    status, body = ready(client)
    assert status == 503
    assert "outbox_lag" in body["reasons"][0]
    lag = float(
        next(
            line.split()[1]
            for line in client.get("/metrics").content.decode().splitlines()
            if line.startswith("xinghuo_outbox_lag_seconds ")
        )
    )
    assert 99 <= lag < 130


def test_an_event_that_is_set_aside_is_a_warning(client: Client, own_redis_server: RedisServer) -> None:
    AlertOutbox.objects.create(kind="update", published_at=now(), seq=1, set_aside_at=now(), set_aside_for="no JSON")
    AlertOutbox.objects.create(kind="update", published_at=now(), seq=2, set_aside_at=now(), resent_at=now())
    status, body = ready(client)
    assert (status, [warning.split(":")[0] for warning in body["warnings"]]) == (200, ["outbox_set_aside"])
    assert "xinghuo_outbox_set_aside_rows 1.0" in client.get("/metrics").content.decode()
    out = StringIO()
    call_command("doctor", stdout=out)
    assert "publish_outbox --retry" in out.getvalue()


def test_an_audit_log_that_can_be_changed(client: Client, own_redis_server: RedisServer) -> None:
    triggers.drop(connection)
    try:
        status, body = ready(client)
    finally:
        triggers.install(connection)
    assert status == 503
    assert body["reasons"][0].startswith("audit_triggers: ")
    assert "audit_log and audit_seal" in body["reasons"][0]


def test_a_check_that_hangs_costs_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TIMEOUT", 0.1)

    def hang() -> checks.Result:
        time.sleep(2.0)
        return checks.Result("slow", True, "at last")

    assert not checks._bounded("slow", hang).ok
    began = time.monotonic()
    assert "no answer for" in checks._bounded("slow", hang).detail
    assert time.monotonic() - began < 1.0


def test_a_check_that_fails_tells_no_secrets() -> None:
    def fail() -> checks.Result:
        raise RuntimeError("password=hunter2")

    result = checks._bounded("odd", fail)
    assert not result.ok
    assert "hunter2" not in result.detail


def doctor(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as exit_:
        return int(str(exit_.code)), out.getvalue()
    return 0, out.getvalue()


def test_doctor_speaks_in_sentences(own_redis_server: RedisServer) -> None:
    _code, out = doctor()
    assert "redis: Redis" in out
    assert "audit_log and audit_seal accept INSERT only" in out
    own_redis_server.kill()
    code, out = doctor()
    assert code == 1
    assert "FAIL redis: Redis does not answer" in out
    assert "Traceback" not in out
    code, out = doctor("--json")
    assert code == 1
    assert json.loads(out)["ok"] is False


def test_a_sealer_that_lags_is_a_warning_and_serving_goes_on(
    client: Client, own_redis_server: RedisServer, settings: Any
) -> None:
    settings.AUDIT_SEAL_LAG = -1
    for _ in range(3):
        record(tenant="default", event_type="authz", decision="forbidden", actor_id="wei")
    status, body = ready(client)
    assert (status, body["status"]) == (200, "ready")
    assert [warning.split(":")[0] for warning in body["warnings"]] == ["audit_seals"]
    assert "3 audit rows are not sealed" in body["warnings"][0]
    metrics = client.get("/metrics").content
    assert b"xinghuo_audit_unsealed_rows 3.0" in metrics
    assert b"xinghuo_audit_seal_lag_seconds" in metrics
    out = StringIO()
    call_command("doctor", stdout=out)
    assert "warn audit_seals: 3 audit rows are not sealed" in out.getvalue()
    seal_waiting()
    assert b"xinghuo_audit_unsealed_rows 0.0" in client.get("/metrics").content
