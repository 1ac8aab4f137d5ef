"""A real MariaDB killed or held up: what access, audit, locks and idempotency answer, as docs/failure-matrix.md says.

Admission's are in tests/guard/admission/test_database_down.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import authenticate as log_in
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, connections
from django.test import RequestFactory

from config.base import redis as base_redis
from guard.access import tokens
from guard.access.models import AgentPrincipal, LoginCount, RevokedToken, TokenFamily
from guard.access.principals import forget_principals
from guard.access.services import authenticate, issue_key, revoke_key, rotate_key
from guard.access.unmasking import unmask
from guard.audit import losses
from guard.audit.models import AuditLog, AuditSeal
from guard.audit.services import observe, record
from guard.audit.tasks import seal as seal_task
from guard.locks import acquire, hold, named
from guard.pruning import prune_guard
from memory.sessions import services as sessions
from tests.guard.idempotency import code_of, kept, make_agent, replayed, sessions_made
from tests.memory.sessions.helpers import empty_redis
from tests.risk.console.make import make_alert, make_customer, make_officer
from tests.services import MariaDB

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]  # a server of its own, killed
HOW = pytest.mark.parametrize("how", ["killed", "hung"])
AWAY = (OperationalError, InterfaceError)
UNAVAILABLE = (503, "DATABASE_UNAVAILABLE")


@contextmanager
def away(server: MariaDB, how: str) -> Iterator[None]:
    server.kill() if how == "killed" else server.pause()
    try:
        yield
    finally:
        server.start() if how == "killed" else server.resume()
        connections.close_all()  # as at the end of a request


@contextmanager
def bounded(seconds: float = 9.0) -> Iterator[None]:
    """One wait for a server that says nothing (3 s here) for a connection that was kept and one for a new one."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@HOW
def test_a_key_that_was_seen_of_late_works_and_all_else_about_keys_is_closed(
    own_database_server: MariaDB, settings: Any, how: str
) -> None:
    known, unknown = make_agent(), make_agent()
    principal = authenticate(key=known.key, actor_id="alice").principal_id
    with away(own_database_server, how):
        # Asked again, for it is remembered for 5 s and time-outs take longer than that.
        settings.PRINCIPAL_CACHE_SECONDS = 60.0
        assert authenticate(key=known.key, actor_id="alice").actor_id == "alice"
        with bounded():
            assert code_of(unknown.post("/sessions", {})) == UNAVAILABLE
        settings.PRINCIPAL_CACHE_SECONDS = 0.0
        with bounded():
            assert code_of(known.post("/sessions", {})) == UNAVAILABLE
        for work in (
            lambda: issue_key(agent="risk"),
            lambda: rotate_key(principal_id=principal, rotated_by="manage.py agent_key", overlap=timedelta(hours=1)),
            lambda: revoke_key(principal_id=principal, revoked_by="manage.py agent_key"),
        ):
            with bounded(), pytest.raises(AWAY):
                work()
    settings.PRINCIPAL_CACHE_SECONDS = 5.0
    assert authenticate(key=known.key, actor_id="alice")
    assert list(AgentPrincipal.objects.filter(pk=principal).values_list("revoked_at", "replaced_by")) == [(None, "")]


@HOW
def test_a_token_in_order_goes_on_unless_redis_says_no_and_nothing_is_issued_or_revoked(
    own_database_server: MariaDB, settings: Any, how: str
) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 60.0
    caller = authenticate(key=issue_key(agent="customer").key, actor_id="alice")
    seen, other, revoked = (tokens.issue_tokens(caller=caller) for _ in range(3))
    for pair in (seen, revoked):
        tokens.check(token=pair.access_token)
    before = dict(tokens._good)
    tokens.revoke_token(caller=caller, token=revoked.access_token)
    tokens._good.update(before)  # a process that has not heard
    families, rows = TokenFamily.objects.count(), RevokedToken.objects.count()
    with away(own_database_server, how):
        assert tokens.check(token=seen.access_token).actor_id == "alice"
        with pytest.raises(Exception, match="TOKEN_REVOKED"):
            tokens.check(token=revoked.access_token)
        for work in (
            lambda: tokens.check(token=other.access_token),
            lambda: tokens.issue_tokens(caller=caller),
            lambda: tokens.refresh_tokens(refresh_token=seen.refresh_token),
            lambda: tokens.revoke_token(caller=caller, token=seen.access_token),
        ):
            with bounded(), pytest.raises(AWAY):
                work()
        empty_redis()  # both away: the blacklist is gone, and MySQL cannot be asked
        forget_principals()
        with bounded(), pytest.raises(AWAY):
            tokens.check(token=seen.access_token)
    assert (TokenFamily.objects.count(), RevokedToken.objects.count()) == (families, rows)
    assert tokens.check(token=seen.access_token), "nothing was revoked"


@HOW
def test_nobody_logs_in(own_database_server: MariaDB, how: str) -> None:
    User.objects.create(username="lin", password=make_password("right"), is_staff=True)
    request = RequestFactory().post("/admin/login/")
    with away(own_database_server, how), bounded(), pytest.raises(AWAY):
        log_in(request, username="lin", password="right")
    assert not LoginCount.objects.exists()
    assert log_in(request, username="lin", password="right")


@HOW
def test_no_row_no_decision_and_what_was_seen_goes_on_counted(
    own_database_server: MariaDB, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    losses._unsaved.clear()
    scan = {"tenant": "default", "event_type": "rule_scan", "decision": "completed", "actor_id": "scan"}
    with away(own_database_server, how):
        with bounded(), pytest.raises(AWAY):
            record(tenant="default", event_type="authz", decision="forbidden", actor_id="wei")
        with bounded():
            assert observe(**scan) is None
        assert losses.read_losses().untold == {"rule_scan": 1}
        assert "an observation was lost: rule_scan" in caplog.text
        with pytest.raises(AWAY):
            seal_task()
        with pytest.raises(AWAY):
            prune_guard()
    seal_task()
    row = AuditLog.objects.get()
    assert (row.code, row.input_summary["lost"]) == ("OBSERVATIONS_LOST", {"rule_scan": 1})
    seal_task()
    assert AuditSeal.objects.latest("number").total == 1


@HOW
def test_no_row_no_values_of_a_customer(own_database_server: MariaDB, how: str) -> None:
    make_customer("C00017")
    alert, officer = make_alert("C00017"), make_officer()
    with away(own_database_server, how), bounded(), pytest.raises(AWAY):
        unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason="calling back")
    assert not AuditLog.objects.filter(event_type="unmask").exists()
    assert unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason="calling back")


def test_the_row_goes_first_and_a_database_that_dies_with_it_shows_nothing(
    own_database_server: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the look at the customer and the row."""
    make_customer("C00017")
    alert, officer = make_alert("C00017"), make_officer()
    original = AuditLog.save

    def dies(self: AuditLog, **more: Any) -> None:
        own_database_server.kill()
        original(self, **more)

    monkeypatch.setattr(AuditLog, "save", dies)
    with pytest.raises(AWAY):
        unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason="calling back")
    monkeypatch.undo()
    own_database_server.start()
    connections.close_all()
    assert not AuditLog.objects.filter(event_type="unmask").exists()


@HOW
def test_locks_are_given_while_leased_numbers_last(own_database_server: MariaDB, how: str) -> None:
    with hold("import") as first:
        fence = first.fence
    with away(own_database_server, how):
        with hold("import") as lock:
            assert lock.fence == fence + 1
        base_redis.state().delete(named.FENCE())  # none left
        with bounded(), pytest.raises(AWAY):
            acquire("import")
    with hold("import") as lock:
        assert lock.fence > fence + 1


@HOW
def test_a_write_that_the_database_refuses_frees_its_key(own_database_server: MariaDB, settings: Any, how: str) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 60.0
    alice = make_agent()
    authenticate(key=alice.key, actor_id="alice")
    with away(own_database_server, how):
        with bounded():
            assert code_of(alice.post("/sessions", {}, once="k")) == UNAVAILABLE
        assert kept("k") == {}
    first = alice.post("/sessions", {}, once="k")
    assert (first.status_code, replayed(first), sessions_made()) == (201, False, 1)
    with away(own_database_server, how):
        again = alice.post("/sessions", {}, once="k")
        assert (again.content, replayed(again)) == (first.content, True), "a replay asks the database nothing"
    assert sessions_made() == 1


def test_a_database_killed_between_the_work_and_its_answer(
    own_database_server: MariaDB, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is answered, and kept."""
    settings.PRINCIPAL_CACHE_SECONDS = 60.0
    alice = make_agent()
    authenticate(key=alice.key, actor_id="alice")
    original = sessions.open_session

    def then_killed(**arguments: Any) -> Any:
        done = original(**arguments)
        own_database_server.kill()
        return done

    monkeypatch.setattr(sessions, "open_session", then_killed)
    first = alice.post("/sessions", {}, once="k")
    monkeypatch.undo()
    settings.PRINCIPAL_CACHE_SECONDS = 60.0
    own_database_server.start()
    connections.close_all()
    again = alice.post("/sessions", {}, once="k")
    assert (first.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert sessions_made() == 1
