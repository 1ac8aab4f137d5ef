"""Workers outlive a broker that takes nothing more."""

from __future__ import annotations

import pytest
from celery import Celery
from redis.exceptions import OutOfMemoryError

from config.celery import app
from tests.services import RedisServer


def test_a_full_broker_is_a_lost_connection_and_no_end_of_the_worker(own_redis_server: RedisServer) -> None:
    full = Celery("full", broker=own_redis_server.url, amqp=type(app.amqp))
    with full.connection_for_write() as connection, connection.SimpleQueue("persist") as queue:
        queue.put("a task")
        own_redis_server.client().config_set("maxmemory", "1mb")
        with pytest.raises(OutOfMemoryError) as refused:
            queue.put("another")
        # What the worker's consumer begins again after, instead of ending.
        assert isinstance(refused.value, connection.connection_errors)
        assert isinstance(refused.value, full.connection_for_read().connection_errors)
