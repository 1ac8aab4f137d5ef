"""The servers and the installation that other tests build on."""

from __future__ import annotations

import pytest

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from tests.services import RedisServer
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


@pytest.mark.slow
def test_a_whole_installation_runs(live_stack: LiveStack) -> None:
    """Starts real processes."""
    assert live_stack.query("SELECT count(*) FROM audit_log") == [(0,)]
    assert live_stack.agent_key("customer", "C-1").startswith("xh_")
    live_stack.kill("drain")
    live_stack.start("drain")
    broker = live_stack.redis.client(3)
    until(lambda: not broker.exists("celery:persist"), what="the drain worker takes its queue")
