"""An observation whose row cannot be written holds up nothing and is not forgotten; a decision does not happen."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client

from config import checks
from config.base import redis as base_redis
from guard.access.models import AgentPrincipal
from guard.access.services import issue_key
from guard.audit import losses
from guard.audit.keys import LOST
from guard.audit.models import OBSERVATIONS, VOCABULARY, AuditLog
from guard.audit.services import observe, record, tell_losses
from guard.audit.tasks import seal as seal_task
from tests.guard.audit.sealing import database_away
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "what-the-row-would-say"


def look(**fields: Any) -> AuditLog | None:
    values = {"tenant": "default", "event_type": "rule_scan", "decision": "completed", "actor_id": "scan"} | fields
    return observe(**values)


@pytest.fixture(autouse=True)
def _nothing_counted_before() -> Iterator[None]:
    losses._unsaved.clear()
    yield
    losses._unsaved.clear()


@contextmanager
def log_that_takes_nothing() -> Iterator[None]:
    """The table itself refuses: as when its disk is full."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_log RENAME TO audit_log_away")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE audit_log_away RENAME TO audit_log")


def test_a_row_that_can_be_written_is_a_row() -> None:
    row = look()
    assert row is not None
    assert AuditLog.objects.get().pk == row.pk
    assert losses.read_losses().total == 0


def test_the_observed_work_goes_on_and_the_loss_is_counted_alarmed_and_told(
    caplog: pytest.LogCaptureFixture, client: Client
) -> None:
    with log_that_takes_nothing(), caplog.at_level(logging.ERROR):
        for _ in range(3):
            with transaction.atomic():
                AgentPrincipal.objects.create(agent="risk", key_digest=f"{AgentPrincipal.objects.count()}")
                assert look(input_summary={"text": SECRET}) is None
        assert look(event_type="notification", decision="failed") is None
    assert AgentPrincipal.objects.count() == 3, "the observed work"
    told = [entry for entry in caplog.records if "observation was lost" in entry.getMessage()]
    assert len(told) == 4
    assert SECRET not in caplog.text
    found = losses.read_losses()
    assert (found.total, found.untold) == (4, {"rule_scan": 3, "notification": 1})
    assert b"xinghuo_audit_lost_observations 4.0" in client.get("/metrics").content
    alarm = checks.audit_losses()
    assert (alarm.ok, alarm.warning) == (True, True), "readiness stays: the work goes on"
    assert alarm.detail.startswith("4 observations could not be written, the last at 2")
    assert "audit_losses" in client.get("/health/ready").json()["checks"]
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command("doctor", stdout=out, stderr=out)
    assert "4 observations could not be written" in out.getvalue()
    seal_task()
    row = AuditLog.objects.get(code="OBSERVATIONS_LOST")
    assert (row.event_type, row.decision) == ("audit_verify", "failed")
    assert row.input_summary["lost"] == {"rule_scan": 3, "notification": 1}
    assert row.input_summary["from"] <= row.input_summary["to"]
    assert tell_losses() == 0, "told once"
    assert losses.read_losses().total == 4, "the metric goes on counting"


def test_with_the_database_away_the_work_goes_on_and_the_loss_is_told_when_it_is_back() -> None:
    with database_away():
        assert look() is None
        with pytest.raises(OperationalError):
            record(tenant="default", event_type="authz", decision="forbidden", actor_id="wei")
    seal_task()
    assert AuditLog.objects.get(code="OBSERVATIONS_LOST").input_summary["lost"] == {"rule_scan": 1}


def test_a_decision_whose_row_cannot_be_written_does_not_happen() -> None:
    with log_that_takes_nothing(), pytest.raises(DatabaseError):
        issue_key(agent="risk")
    assert not AgentPrincipal.objects.exists()


def test_redis_away_too_keeps_the_count_in_the_process(own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    with log_that_takes_nothing():
        assert look() is None
    assert look() is not None, "nothing waits for Redis"
    own_redis_server.start()
    base_redis.breaker.reset()
    assert look() is not None  # the next that works brings the count along
    assert losses.read_losses().untold == {"rule_scan": 1}


def test_a_redis_that_hangs_costs_a_tenth_of_a_second_once(own_redis_server: RedisServer) -> None:
    look()
    own_redis_server.pause()
    try:
        with log_that_takes_nothing():
            for most in (0.1, 0.0):
                began = time.monotonic()
                assert look() is None
                assert time.monotonic() - began < most + 0.25, "with what a busy machine adds"
    finally:
        own_redis_server.resume()
    base_redis.client_for(django_settings.REDIS_URL, timeout=losses.PATIENCE).breaker.reset()
    assert look() is not None
    # The first count may have been taken though its answer came too late: told twice, never not at all.
    assert losses.read_losses().untold["rule_scan"] in (2, 3)


def test_a_count_that_somebody_spoilt_begins_anew() -> None:
    base_redis.state().set(LOST(), "x")
    losses.count_loss("rule_scan", DatabaseError())
    assert losses.read_losses().untold == {"rule_scan": 1}
    assert base_redis.state().ttl(LOST()) > 0


def test_where_the_callers_own_transaction_is_lost_going_on_would_lose_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a deadlock the database has rolled back everything, the savepoint too: only the owner can start over."""

    def deadlock(*_args: Any, **_kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")  # as the database does it
        raise OperationalError(1213, "Deadlock found")

    monkeypatch.setattr(AuditLog, "save", deadlock)

    def work() -> None:
        with transaction.atomic():
            AgentPrincipal.objects.create(agent="risk", key_digest="x")
            look()

    with pytest.raises(OperationalError):
        work()
    assert not AgentPrincipal.objects.exists()
    assert losses.read_losses().total == 0


def test_only_observations_may_be_lost() -> None:
    for event, decision in (("authz", "forbidden"), ("principal", "issued"), ("unmask", "granted"), ("erasure", "set")):
        with pytest.raises(ValueError, match="is a decision"):
            look(event_type=event, decision=decision)
    for event, decisions in OBSERVATIONS.items():
        assert decisions <= VOCABULARY[event]
    with pytest.raises(ValueError, match="vocabulary"):
        record(tenant="default", event_type="rule_scan", decision="set", actor_id="x")
