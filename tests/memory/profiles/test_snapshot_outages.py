"""Advisor snapshots: what the core or Redis away, hanging or spoilt does to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from config.base import redis as base_redis
from config.base.clock import now
from config.base.keys import prefixed
from memory.core import window
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.snapshots import services
from tests.memory.core.external import external_core, make_sqlite_core
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    WEI,
    make_agent,
)
from tests.memory.profiles.holdings import (
    KEY,
    TODAY,
    cached,
    copy,
    imported,
    make_alice,
    snapshot,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(transactional_db: None) -> None:
    make_alice()


@pytest.fixture
def away(settings: Any, tmp_path: Path, alice: None) -> Iterator[Callable[[], None]]:
    """The core is another file, in which Wei has Alice; calling it takes its positions away."""
    path = tmp_path / "core.sqlite3"
    rows = (
        "INSERT INTO core_assignment (id, tenant, advisor_id, customer_id, valid_from) VALUES (1,'default',?,?,?)",
        (WEI, ALICE, "2020-01-01 00:00:00"),
    )
    position = (
        "INSERT INTO core_position (id, tenant, customer_id, product_id, as_of, market_value) "
        "VALUES (1, 'default', ?, 'p5', ?, '77')",
        (ALICE, TODAY.isoformat()),
    )

    def take_away() -> None:
        import sqlite3

        own = sqlite3.connect(path)
        own.execute("DROP TABLE core_position")
        own.close()

    with external_core(settings, make_sqlite_core(path, rows, position)):
        yield take_away


def test_with_the_core_away_the_last_copy_says_how_old_it_is(away: Callable[[], None]) -> None:
    assert snapshot()["total"] == "77.00"
    CustomerProfileL2.objects.update(snapshot_at=now() - timedelta(hours=2))
    away()
    assert not snapshot()["stale"]  # the cached one lives to its end
    leased.drop([services.place_of("default", WEI, ALICE)])
    found = snapshot(at=now() + timedelta(seconds=100))
    assert (found["stale"], found["total"]) == (True, "77.00")
    assert 100 <= found["age_seconds"] < 130
    assert cached() is None  # what is stale is not cached as if it were fresh


def test_with_the_core_away_and_no_copy_it_is_503_and_not_an_empty_snapshot(away: Callable[[], None]) -> None:
    away()
    answer = make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")
    window.breaker.trip()
    answer = make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")


def test_a_redis_that_is_down_hangs_or_was_emptied(alice: None, settings: Any, own_redis_server: RedisServer) -> None:
    settings.CACHE_REDIS_URL = own_redis_server.url.replace("/0", "/1")
    snapshot()
    own_redis_server.pause()
    began = time.monotonic()
    assert [snapshot()["total"] for _ in range(5)] == ["200000.005"] * 5
    assert time.monotonic() - began < 2
    own_redis_server.resume()
    own_redis_server.kill()
    assert snapshot()["total"] == "200000.005"
    imported("160000")  # its DEL is lost with the server
    assert snapshot()["total"] == "210000.005"
    own_redis_server.start()
    own_redis_server.empty()
    base_redis.forget_clients()
    assert snapshot()["total"] == "210000.005"
    assert cached() == copy()
    assert CustomerProfileL2.objects.get().version == 2


def test_what_another_program_wrote_there_is_no_snapshot(alice: None) -> None:
    client = base_redis.client_for(django_settings.CACHE_REDIS_URL)
    for value in ('{"total": "1"}', "[]", "no json", json.dumps({"advisor_id": WEI, "customer_id": BOB})):
        client.set(prefixed(KEY), value, ex=100)
        assert snapshot()["total"] == "200000.005"
    client.delete(prefixed(KEY))
    client.rpush(prefixed(KEY), "x")
    assert snapshot()["total"] == "200000.005"
