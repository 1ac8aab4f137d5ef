"""Fixtures of every test: a Redis key prefix of its own, and a database that can be emptied."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def own_redis_prefix(settings: Any) -> Iterator[str]:
    """Each test has its own key prefix; its keys are removed by prefix scan, whatever else is on the server."""
    from config.base import redis as base_redis
    from guard.access.services import forget_principals

    settings.REDIS_KEY_PREFIX = f"t{uuid.uuid4().hex[:12]}"
    forget_principals()
    base_redis.breaker.reset()
    yield settings.REDIS_KEY_PREFIX
    try:
        client = base_redis.state()
        for name in client.scan_iter(f"{settings.REDIS_KEY_PREFIX}:*", count=500):
            client.delete(name)
    except Exception:  # noqa: BLE001 - a test may have stopped the server
        pass


@pytest.fixture(autouse=True, scope="session")
def flush_past_the_triggers() -> Iterator[None]:
    """Transactional tests empty the tables afterwards, which audit_log's triggers rightly refuse: they are dropped
    for that moment (flush sends post_migrate, which puts them back)."""
    from django.db import connections
    from django.test import TransactionTestCase

    from guard.audit import triggers

    original = TransactionTestCase._fixture_teardown

    def teardown(self: Any) -> None:
        for connection in connections.all():
            if triggers.TABLE in connection.introspection.table_names():
                triggers.drop(connection)
        original(self)
        for connection in connections.all():
            if triggers.TABLE in connection.introspection.table_names():
                triggers.install(connection)

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[method-assign]
    yield
    TransactionTestCase._fixture_teardown = original  # type: ignore[method-assign]
