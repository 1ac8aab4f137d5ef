"""Redis is away while a customer is erased, and comes back with all that it had on its disk."""

from __future__ import annotations

from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.erasure.models import ErasureReceipt
from memory.erasure.services import finish_open
from memory.profiles import selectors as profile_reads
from memory.profiles.models import ProfileChange
from memory.profiles.sweeping import sweep
from memory.sessions import selectors
from memory.sessions.drain import drain
from memory.sessions.models import AgentMessage, MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.memory.erasure.helpers import (
    ALICE,
    ALICE_ID,
    SECRET,
    erase,
    found_in_database,
    found_in_redis,
    left_of,
    make_profiles,
    make_session,
    say,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cache_beside(settings: Any, own_redis_server: RedisServer) -> RedisServer:
    settings.CACHE_REDIS_URL = own_redis_server.url.replace("/0", "/1")
    return own_redis_server


def a_life() -> str:
    session = make_session()
    say(session, durability="sync", entry_id="given")
    say(session)
    make_profiles()
    profile_reads.read_l1(caller=ALICE, customer_id=ALICE_ID)
    return session


def settle_profiles() -> None:
    """What the sweeper does in its next seconds."""
    sweep()
    ProfileChange.objects.update(swept_at="2020-01-01T00:00:00Z")
    sweep()


@pytest.mark.slow  # a real server is killed and started again
def test_mysql_is_done_the_receipt_says_what_is_open_and_beat_finishes_it(cache_beside: RedisServer) -> None:
    session = a_life()
    cache_beside.kill()
    code, receipt = erase()
    assert (code, receipt["state"]) == (1, "open")
    redis_parts = {"redis.keys", "redis.answers", "redis.answer_cache"}
    assert set(receipt["remains"]) == {"memory.sessions", "memory.profiles", *redis_parts}
    assert found_in_database(SECRET) == []
    assert finish_open() == 0  # still away

    cache_beside.start()
    base_redis.breaker.reset()
    assert found_in_redis(SECRET) != []  # it came back with everything
    # Nobody is shown any of it, and nothing of it comes back into MySQL.
    for read in (selectors.read_messages, selectors.get_context):
        with pytest.raises(DomainError) as caught:
            read(caller=ALICE, session_id=session)
        assert caught.value.code == "CUSTOMER_ERASED"
    drain(seconds=0.5)
    assert AgentMessage.objects.count() == 0
    assert MessageDeadLetter.objects.count() == 0
    reattach()

    finish_open()
    settle_profiles()
    finish_open()
    row = ErasureReceipt.objects.get()
    assert (row.state, row.remains) == ("done", {})
    assert left_of(SECRET, ALICE_ID) == []
    assert erase()[0] == 0


@pytest.mark.slow  # a real server is killed and started again
def test_the_next_run_finishes_it_too(cache_beside: RedisServer) -> None:
    a_life()
    cache_beside.kill()
    assert erase()[0] == 1
    cache_beside.start()
    base_redis.breaker.reset()
    code, receipt = erase()
    assert (code, receipt["state"], receipt["remains"]) == (0, "done", {})
    assert left_of(SECRET, ALICE_ID) == []


@pytest.mark.slow  # a real server is stopped for a while
def test_a_partition_shows_nothing_either(cache_beside: RedisServer) -> None:
    """Redis itself was never away: only the eraser did not reach it. Its state is the same server's, and in order."""
    session = a_life()
    cache_beside.pause()
    code, _ = erase()
    assert code == 1
    cache_beside.resume()
    base_redis.breaker.reset()
    reattach()  # beat's next second
    with pytest.raises(DomainError) as caught:
        selectors.read_messages(caller=ALICE, session_id=session)
    assert caught.value.code == "CUSTOMER_ERASED"
    assert erase()[0] == 0
    assert left_of(SECRET, ALICE_ID) == []
