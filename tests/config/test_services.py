"""The servers and the installation that other tests build on."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connections

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from tests.services import MariaDB, RedisServer
from tests.stack import LiveStack, until


def test_a_private_redis_keeps_its_data_through_a_kill(own_redis_server: RedisServer) -> None:
    base_redis.state().set("probe", "kept")
    own_redis_server.kill()
    with pytest.raises(RedisUnavailable), base_redis.translated():
        base_redis.state().get("probe")
    own_redis_server.start()
    base_redis.breaker.reset()
    assert base_redis.state().get("probe") == "kept"
    own_redis_server.empty()
    base_redis.forget_clients()
    assert base_redis.state().get("probe") is None


def elsewhere(work: Any) -> Any:
    """What `work()` gives in a thread with connections of its own."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


@pytest.mark.mariadb
def test_a_private_mariadb_keeps_what_was_committed_through_a_kill(own_database_server: MariaDB) -> None:
    Group.objects.create(name="kept")
    own_database_server.kill()
    with pytest.raises(OperationalError):
        Group.objects.count()
    connections.close_all()
    with pytest.raises(OperationalError):
        Group.objects.count()
    own_database_server.start()
    assert elsewhere(lambda: Group.objects.filter(name="kept").count()) == 1
    own_database_server.pause()
    began = time.monotonic()
    with pytest.raises(OperationalError):
        Group.objects.count()
    assert 2 < time.monotonic() - began < 5
    own_database_server.kill()  # the next test finds it running all the same


@pytest.mark.mariadb
def test_a_private_mariadb_is_put_back_for_the_next_test(own_database_server: MariaDB) -> None:
    from guard.audit import triggers

    assert not Group.objects.filter(name="kept").exists()
    assert triggers.missing(connections["default"]) == []


@pytest.mark.mariadb
def test_other_tests_have_the_database_of_the_run(transactional_db: None, own_database: Any) -> None:
    assert int(connections["default"].settings_dict["PORT"]) != own_database.server.port
    assert not Group.objects.filter(name="kept").exists()


@pytest.mark.slow
def test_a_whole_installation_runs(live_stack: LiveStack) -> None:
    """Starts real processes."""
    assert live_stack.query("SELECT count(*) FROM audit_log") == [(0,)]
    assert live_stack.agent_key("customer", "C-1").startswith("xh_")
    live_stack.kill("drain")
    live_stack.start("drain")
    broker = live_stack.redis.client(3)
    until(lambda: not broker.exists("celery:persist"), seconds=60, what="the drain worker takes its queue")
