"""A key is replaced while it is in use: both are good for the overlap, then one is."""

from __future__ import annotations

import io
import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.base.errors import DomainError
from guard.access import principals, services
from guard.access.invalidation import Listener
from guard.access.models import AgentPrincipal
from guard.access.services import authenticate, issue_key, revoke_key, rotate_key
from guard.audit.models import AuditLog
from tests.risk.console.make import make_client, make_manager, make_operator
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def code_of(work: Any, **call: Any) -> str:
    with pytest.raises(DomainError) as refusal:
        work(**call)
    return refusal.value.code


def rotate(principal_id: str, overlap: timedelta = HOUR, **more: Any) -> services.IssuedKey:
    return rotate_key(principal_id=principal_id, overlap=overlap, rotated_by="ops", **more)


def test_both_keys_are_good_until_the_overlap_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    old = issue_key(agent="customer", tenant="east", actor_id="alice", note="app")
    new = rotate(old.principal.principal_id)
    for key in (old.key, new.key):
        assert authenticate(key=key, actor_id=None).actor_id == "alice"
    assert (new.principal.tenant, new.principal.agent, new.principal.note) == ("east", "customer", "app")
    assert new.principal.expires_at is None
    monkeypatch.setattr(services, "now", lambda: now() + HOUR + timedelta(seconds=1))
    assert code_of(authenticate, key=old.key, actor_id=None) == "KEY_EXPIRED"
    assert authenticate(key=new.key, actor_id=None)
    row = AuditLog.objects.get(event_type="principal", decision="rotated")
    assert (row.tenant, row.object_id, row.input_summary) == (
        "east", old.principal.principal_id, {"replaced_by": new.principal.principal_id},
    )  # fmt: skip


def test_the_new_key_lives_as_long_as_the_old_one_did_and_no_overlap_lengthens_a_life() -> None:
    old = issue_key(agent="risk", expires_in=timedelta(minutes=30))
    new = rotate(old.principal.principal_id, overlap=timedelta(days=1))
    assert new.principal.expires_at is not None
    assert abs(new.principal.expires_at - now() - timedelta(minutes=30)) < timedelta(seconds=5)
    ends = AgentPrincipal.objects.get(pk=old.principal.pk).expires_at
    assert ends == old.principal.expires_at
    assert rotate(new.principal.principal_id, expires_in=timedelta(days=9)).principal.expires_at > now() + timedelta(8)


def test_without_an_overlap_the_old_key_ends_at_once_here() -> None:
    old = issue_key(agent="risk")
    authenticate(key=old.key, actor_id="R1")
    rotate(old.principal.principal_id, overlap=timedelta(0))
    assert code_of(authenticate, key=old.key, actor_id="R1") == "KEY_EXPIRED"


def test_what_cannot_be_rotated() -> None:
    old = issue_key(agent="risk")
    new = rotate(old.principal.principal_id)
    assert code_of(rotate, principal_id=old.principal.principal_id) == "KEY_ROTATED"
    assert AgentPrincipal.objects.count() == 2
    assert AuditLog.objects.filter(decision="rotated").count() == 1
    for wrong in (timedelta(seconds=-1), timedelta(days=31)):
        assert code_of(rotate, principal_id=new.principal.principal_id, overlap=wrong) == "INVALID_REQUEST"
    revoke_key(principal_id=new.principal.principal_id, revoked_by="ops")
    assert code_of(rotate, principal_id=new.principal.principal_id) == "KEY_REVOKED"
    assert code_of(rotate, principal_id="nobody") == "NOT_FOUND"
    elsewhere = issue_key(agent="risk", tenant="west").principal.principal_id
    assert code_of(rotate, principal_id=elsewhere, tenant="east") == "NOT_FOUND"


@pytest.mark.mariadb
def test_of_many_who_rotate_at_once_one_wins() -> None:
    old = issue_key(agent="risk").principal.principal_id
    start, done = threading.Barrier(16), []

    def work() -> None:
        start.wait()
        try:
            done.append(rotate(old).principal.principal_id)
        except DomainError as error:
            done.append(error.code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done)[1:] == ["KEY_ROTATED"] * 15
    assert AgentPrincipal.objects.count() == 2
    assert AgentPrincipal.objects.get(pk=old).replaced_by == sorted(done)[0]


def test_the_last_use_costs_a_write_in_five_minutes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = issue_key(agent="risk")

    def used() -> Any:
        return AgentPrincipal.objects.get(pk=key.principal.pk).last_used_at

    assert used() is None
    authenticate(key=key.key, actor_id="R1")
    first = used()
    assert first is not None
    with CaptureQueriesContext(connection) as queries:
        for _ in range(50):
            authenticate(key=key.key, actor_id="R1")
    assert len(queries) == 0
    principals.forget_principals()
    authenticate(key=key.key, actor_id="R1")
    assert used() == first
    AgentPrincipal.objects.update(last_used_at=first - timedelta(seconds=principals.LAST_USED_SECONDS + 1))
    principals.forget_principals()
    authenticate(key=key.key, actor_id="R1")
    assert used() >= first


def heard(*, then: Any) -> list[str | None]:
    """What a listener is told of while `then` works."""
    news: list[str | None] = []
    told = threading.Event()

    def forget(one: str | None) -> None:
        news.append(one)
        if one is not None:
            told.set()

    listener = Listener(forget)
    listener.start()
    try:
        assert listener.listening.wait(10)
        then()
        told.wait(10)
    finally:
        listener.stop()
    return news


def test_other_processes_are_told_at_once_of_keys_that_were_revoked_or_rotated() -> None:
    first, second = issue_key(agent="risk").principal, issue_key(agent="risk").principal
    assert heard(then=lambda: revoke_key(principal_id=first.principal_id, revoked_by="ops")) == [
        None,  # whoever begins to listen forgets what it has
        first.principal_id,
    ]
    assert heard(then=lambda: rotate(second.principal_id))[1:] == [second.principal_id]


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_redis_away_revokes_all_the_same(own_redis_server: RedisServer, how: str) -> None:
    key, other = issue_key(agent="risk"), issue_key(agent="risk")
    getattr(own_redis_server, how)()
    base_redis.forget_clients()
    try:
        began = time.monotonic()
        assert authenticate(key=other.key, actor_id="R1")
        assert time.monotonic() - began < 0.25, "keys ask Redis nothing"
        revoke_key(principal_id=key.principal.principal_id, revoked_by="ops")
        assert code_of(authenticate, key=key.key, actor_id="R1") == "KEY_REVOKED"
    finally:
        if how == "pause":
            own_redis_server.resume()


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("agent_key", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_rotates_and_shows_the_new_key_once() -> None:
    old = issue_key(agent="advisor")
    made = json.loads(run("--rotate", old.principal.principal_id, "--overlap", "1h", "--json"))
    assert authenticate(key=made["key"], actor_id="A1").principal_id == made["principal"]
    assert authenticate(key=old.key, actor_id="A1")
    listed = {row["principal"]: row for row in json.loads(run("--list", "--json"))}
    assert (listed[old.principal.principal_id]["state"], listed[made["principal"]]["state"]) == ("rotated", "active")
    assert listed[old.principal.principal_id]["replaced_by"] == made["principal"]
    for wrong, code in (
        (("--rotate", "x"), 2),
        (("--overlap", "1h", "--agent", "risk"), 2),
        (("--rotate", "x", "--overlap", "soon"), 2),
        (("--rotate", "x", "--overlap", "1h"), 1),
        (("--rotate", old.principal.principal_id, "--overlap", "1h"), 1),
        (("--rotate", "x", "--overlap", "1h", "--revoke", "y"), 2),
    ):
        with pytest.raises(CommandError) as refused:
            run(*wrong)
        assert refused.value.returncode == code, wrong


KEYS = "/admin/guard/agentprincipal/"


def test_an_operator_rotates_in_the_console_and_sees_each_new_key_once() -> None:
    client = make_client(make_operator())
    olds = [issue_key(agent="risk"), issue_key(agent="customer")]
    chosen = {"action": "rotate", "_selected_action": [old.principal.pk for old in olds]}
    asked = client.post(KEYS, chosen)
    assert asked.status_code == 200
    assert AgentPrincipal.objects.count() == 2
    shown = client.post(KEYS, {**chosen, "overlap": "3600"})
    text = shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    assert text.count("xh_") == 2
    for old in olds:
        fresh = AgentPrincipal.objects.get(pk=old.principal.pk)
        assert fresh.replaced_by
        assert fresh.replaced_by in text
        assert authenticate(key=old.key, actor_id="R1")
    assert client.post(f"{KEYS}{olds[0].principal.pk}/change/", {"rotate": "1"}).status_code == 200
    assert AuditLog.objects.filter(decision="rotated", actor_id="ops").count() == 2


def test_a_manager_rotates_nothing_also_not_in_python() -> None:
    manager, old = make_manager(), issue_key(agent="risk").principal
    client = make_client(manager)
    assert client.post(KEYS, {"action": "rotate", "_selected_action": old.pk, "overlap": "0"}).status_code == 403
    assert code_of(rotate_key, principal_id=old.principal_id, overlap=HOUR, rotated_by=manager) == "FORBIDDEN"
    assert code_of(revoke_key, principal_id=old.principal_id, revoked_by=manager) == "FORBIDDEN"
    assert code_of(issue_key, agent="risk", issued_by=manager) == "FORBIDDEN"
    assert AgentPrincipal.objects.get().replaced_by == ""
    assert AuditLog.objects.filter(event_type="authz", code="FORBIDDEN", actor_id="meng").count() >= 3


def test_an_operator_of_another_tenant_rotates_nothing_here() -> None:
    west = issue_key(agent="risk", tenant="west").principal
    operator = make_operator(tenant="east")
    assert code_of(revoke_key, principal_id=west.principal_id, revoked_by=operator) == "FORBIDDEN"
    assert code_of(issue_key, agent="risk", tenant="west", issued_by=operator) == "FORBIDDEN"
