"""What a session takes: measured in the live Redis, projected, and nothing of it left behind or disturbed."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from config.base import redis as base_redis
from config.base.clock import now
from config.base.keys import prefixed
from guard.access.services import Caller
from memory.management.commands import capacity as command
from memory.sessions import capacity
from memory.sessions.capacity import SCRATCH_TENANT, Measured, measure
from memory.sessions.drain import backlog, drain
from memory.sessions.models import AgentMessage, AgentSession, SessionNumbering
from tests.memory.sessions.helpers import append, make_session, owner, stored
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def names() -> set[str]:
    return set(base_redis.state().scan_iter(prefixed("*"), count=1000))


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    try:
        call_command("capacity", "--json", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, json.loads(out.getvalue() or "{}")
    return 0, json.loads(out.getvalue())


def test_it_measures_projects_and_leaves_nothing() -> None:
    session = make_session()
    append(session, "queued", "and kept")
    before = {name: base_redis.state().dump(name) for name in owner(session).keys}
    keys = names()
    code, report = run("--samples", "20", "--sessions", "100000")
    assert code == 0
    sizes = report["bytes_per_session"]
    print(report)
    assert 500 < sizes["ctx"] < 1100
    assert 3000 < sizes["msgs"] < 4500
    assert sizes["ids"] == 0  # ids that were made for the call have no receipts
    assert report["total_bytes_per_session"] == sum(sizes.values()) < 5500  # about 5 KB
    assert report["projected_bytes"] >= 100_000 * report["total_bytes_per_session"] - 100_000
    # Compact all of it: small hashes and lists, whose overhead is a few bytes a field.
    assert report["encodings"]["ctx"][0] in ("listpack", "ziplist")
    assert names() == keys
    assert {name: base_redis.state().dump(name) for name in owner(session).keys} == before
    assert backlog() == 2
    assert AgentSession.objects.count() == 1
    assert not SessionNumbering.objects.exclude(session_row__tenant="default").exists()
    drain()
    assert [content for _, content in stored(session)] == ["queued", "and kept"]
    assert AgentMessage.objects.count() == 2


def test_a_budget_decides_the_exit_code() -> None:
    assert run("--samples", "3", "--budget", "100")[0] == 1
    assert run("--samples", "3", "--budget", "100000")[0] == 0
    assert run("--samples", "0")[0] == 2
    assert run("--samples", "3", "--rounds", "1")[1]["bytes_per_session"]["msgs"] < 1000
    assert run("--samples", "3", "--given-ids")[1]["bytes_per_session"]["ids"] > 500


def test_a_bound_of_the_queue_does_not_end_it(settings: Any) -> None:
    settings.SESSION_BACKLOG_SYNC, settings.SESSION_BACKLOG_REFUSE = 0, 1
    code, report = run("--samples", "3", "--rounds", "4")
    assert (code, report["samples"]) == (0, 3)
    assert not [name for name in names() if SCRATCH_TENANT in name or "sess:capacity" in name]


def test_a_fresh_server_is_projected_by_what_sessions_take(own_redis_server: RedisServer) -> None:
    base_redis.state().script_flush()
    report = run("--samples", "60")[1]
    assert not report["used_memory_disturbed"]
    each = report["projected_bytes_per_session"]
    assert each == max(report["used_memory_bytes_per_session"], report["total_bytes_per_session"])
    assert report["total_bytes_per_session"] <= each < 1.1 * report["total_bytes_per_session"]
    assert run("--samples", "60", "--budget", str(report["total_bytes_per_session"] - 1))[0] == 1


def test_other_traffic_is_noticed_and_not_projected(own_redis_server: RedisServer) -> None:
    client = own_redis_server.client()

    def others(count: int) -> None:
        client.set(f"others:{n}", "x" * 3000) if (n := next(turns)) % 2 else None

    turns = itertools.count()
    measured = measure(samples=40, progress=others)
    assert 0.9 * measured.total < measured.grown < 1.5 * measured.total  # a figure that looks sound
    assert measured.disturbed
    assert measured.projected(1000) == int(1000 * measured.total)
    calm = replace(measured, middle=(measured.grown, measured.grown))
    assert not calm.disturbed


def test_the_budget_is_held_against_what_is_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Measured(3, 10, {"ctx": 900.0, "msgs": 3800.0, "ids": 0.0}, {}, 5000.0, (5000.0, 5000.0))
    monkeypatch.setattr(command, "measure", lambda **_: sound)
    assert run("--budget", "4800")[0] == 1
    assert run("--budget", "5000")[0] == 0
    monkeypatch.setattr(command, "measure", lambda **_: replace(sound, middle=(4000.0, 6000.0)))
    assert run("--budget", "4800")[0] == 0


def test_what_a_killed_measurement_left_is_removed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    live = make_session(session_id="capacity-is-also-a-name", caller=Caller("capacity-eu", "customer", "alice"))
    killed = Caller(f"{SCRATCH_TENANT}dead", "customer", "capacity")
    make_session(caller=killed, session_id="sample-000000000000")
    measure(samples=1)
    assert AgentSession.objects.count() == 2  # it may be running still
    AgentSession.objects.filter(tenant=killed.tenant).update(created_at=now() - timedelta(hours=2))
    measure(samples=1)
    assert [row.session_id for row in AgentSession.objects.all()] == [live]
    assert not [name for name in names() if SCRATCH_TENANT in name]

    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(capacity, "append_in_redis", broken)
    with pytest.raises(RuntimeError):
        measure(samples=3)
    assert AgentSession.objects.count() == 1
    assert not [name for name in names() if SCRATCH_TENANT in name or "sess:capacity" in name]


def test_redis_away_is_said_so(own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    assert run("--samples", "3")[0] == 2
