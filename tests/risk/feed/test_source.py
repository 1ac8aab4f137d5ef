"""A screen learns that its source has gone quiet, and that it is back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.base import redis as base_redis
from config.base.clock import now
from risk.alerts.models import AlertOutbox
from risk.feed import services, source
from risk.feed.services import publish, tell_alive
from risk.feed.tasks import publish_task
from tests.risk.alerts.people import make_hit, make_person, settle
from tests.risk.feed.server import Watching, log_in

pytestmark = pytest.mark.django_db(transaction=True)


def beats(socket: Watching, why: str) -> dict:
    """The first heartbeat that names this reason (none: that all is well)."""
    for _ in range(20):
        frame = socket.next(10)
        if frame["type"] == "heartbeat" and frame.get("why", "") == why:
            return frame
    raise AssertionError(f"no heartbeat says {why!r}")


@pytest.fixture
def impatient(monkeypatch, settings) -> None:
    settings.FEED_WATCH_SECONDS = 1
    monkeypatch.setattr(source, "QUIET_SECONDS", 1.5)
    monkeypatch.setattr(services, "_told_alive", -1.0)
    monkeypatch.setattr(services, "ALIVE_SECONDS", 0.0)


def test_a_publisher_that_does_not_look_is_told_and_one_that_is_back_too(impatient, port) -> None:
    with Watching(port, log_in(make_person("alice"))) as officer:
        assert officer.next()["type"] == "hello"
        frame = beats(officer, "publisher")
        assert (frame["head"], frame["source"]) == (0, "quiet")
        assert frame["since"] <= now().isoformat()
        publish_task()
        assert beats(officer, "") == {"type": "heartbeat", "head": 0}


def test_an_event_that_stays_in_the_outbox_is_told(impatient, port) -> None:
    settle(make_hit())
    AlertOutbox.objects.update(created_at=now() - timedelta(minutes=3))
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        tell_alive()
        assert beats(officer, "outbox")["since"].endswith("Z")
        publish()
        tell_alive()
        assert beats(officer, "") == {"type": "heartbeat", "head": 1}


def test_a_relay_that_does_not_hear_redis_says_so_and_gives_what_is_stamped(impatient, own_redis_server, port) -> None:
    settle(make_hit())
    publish()
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        own_redis_server.kill()
        beats(officer, "relay")
        settle(make_hit("T2", customer="C2"))
        publish()
        assert officer.seqs(1) == [2], "from the outbox, with the next look"
        own_redis_server.start()
        base_redis.breaker.reset()
        services.backoff.reset()
        for _ in range(20):
            publish()
            tell_alive()
            if "source" not in officer.next(5):
                break
        else:
            raise AssertionError("the source is back, and nobody says so")
