"""Somebody else has written under our names: what is measured goes on being measured, and no command falls over it."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from config.base.clock import now
from guard.access.services import issue_key
from guard.admission import counting
from guard.admission import keys as admission
from guard.audit import losses
from guard.audit.keys import LOST
from guard.audit.models import OBSERVATIONS
from guard.audit.services import tell_losses
from memory.profiles.answers.keys import LOOKUPS
from memory.sessions.keys import PENDING

pytestmark = pytest.mark.django_db(transaction=True)

LONG = b"9" * 5000
EVENT = sorted(OBSERVATIONS)[0]
FIELDS = {
    b"junk": b"1", b"": b"", b"\xff": b"\xff", b"a:b:c:d:e": b"1", b"rate:refused:redis": b"x",
    b":admitted:redis": LONG, b"default:advisor:hit": b"-1", b"total": b"x", b"first_at": LONG,
    b"last_at": b"9" * 18, b"untold:odd": b"5", f"untold:{EVENT}".encode(): LONG, b"spent": b"\xff", b"server": b"?",
}  # fmt: skip
DAMAGES: dict[str, Any] = {
    "list": ["x"], "set": {"x"}, "hash": FIELDS, "zset": {"x": 1.0, b"\xff": 2.0}, "stream": None, "text": b"x",
    "bytes": b"\xff\xfe",
}  # fmt: skip


def measured() -> list[str]:
    return [
        LOOKUPS(), LOST(), PENDING(), admission.COUNTS(), admission.TENANT_ACTIVE("default"),
        admission.BUDGET("default", month=f"{now():%Y-%m}"),
    ]  # fmt: skip


def damage(client: redis.Redis, name: str, kind: str) -> None:
    client.delete(name)
    value = DAMAGES[kind]
    if kind == "list":
        client.rpush(name, *value)
    elif kind == "set":
        client.sadd(name, *value)
    elif kind == "hash":
        client.hset(name, mapping=value)
    elif kind == "zset":
        client.zadd(name, value)
    elif kind == "stream":
        client.xadd(name, {b"\xff": b"\xff"})
    else:
        client.set(name, value)


def families() -> set[str]:
    answer = Client().get("/metrics")
    assert answer.status_code == 200
    return {line.split()[2] for line in answer.content.decode().splitlines() if line.startswith("# TYPE")}


@pytest.mark.parametrize("kind", DAMAGES)
def test_one_spoilt_key_takes_no_other_figure_away(kind: str) -> None:
    issue_key(agent="customer")
    whole = families()
    assert {"xinghuo_answer_cache_lookups", "xinghuo_admissions_total", "xinghuo_audit_lost_observations"} <= whole
    for url in {settings.REDIS_URL, settings.CACHE_REDIS_URL}:
        with redis.Redis.from_url(url) as client:
            for name in measured():
                damage(client, name, kind)
                missing = whole - families()
                assert missing <= ({"xinghuo_worker_lag_seconds"} if name == PENDING() else set()), (name, missing)
                ready = Client().get("/health/ready").json()["checks"]
                assert "failed (" not in " ".join(check["detail"] for check in ready.values()), name
                assert ready["audit_losses"]["ok"]
                client.delete(name)


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_counts_goes_on_counting(kind: str) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        damage(client, LOST(), kind)
        losses.count_loss(EVENT, ValueError())
        assert losses.read_losses().untold == {EVENT: 1}
        assert tell_losses() == 1
        assert losses.read_losses().untold == {}
        damage(client, admission.COUNTS(), kind)
        counting.count("rate", local=False)
        for _ in range(2):
            counting.tell()
        assert b"1" in client.hvals(admission.COUNTS())


@pytest.mark.parametrize("kind", DAMAGES)
def test_commands_fall_over_no_spoilt_key(kind: str) -> None:
    for command in (["answers"], ["doctor"], ["keys", "--check"], ["tenants"], ["drain_messages"], ["reconcile"]):
        for url in {settings.REDIS_URL, settings.CACHE_REDIS_URL}:
            with redis.Redis.from_url(url) as client:
                for name in measured():
                    damage(client, name, kind)
        with suppress(SystemExit, CommandError):  # a finding is told in words and by the exit code
            call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())
