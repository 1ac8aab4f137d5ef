"""The officer's socket, on a real server."""

from __future__ import annotations

import threading
import time

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from websockets.exceptions import InvalidStatus

from config.base import redis as base_redis
from guard.access.roles import COMPLIANCE_AUDITOR
from risk.alerts.models import AlertOutbox
from risk.alerts.services import claim
from risk.feed import database
from risk.feed.origin import is_allowed
from risk.feed.relay import _relays as relays
from risk.feed.services import publish
from tests.risk.alerts.people import make_hit, make_manager, make_person, settle, the_alert
from tests.risk.feed.server import Watching, log_in
from tests.risk.feed.telling import lose, tell
from tests.stack import until

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_is_not_logged_in_is_told_so_and_who_has_no_role_too(port) -> None:
    with Watching(port, None) as nobody:
        assert nobody.close_code() == 4401
    for role in ("", COMPLIANCE_AUDITOR):
        with Watching(port, log_in(make_person(f"x{role}", role))) as outsider:
            assert outsider.close_code() == 4403
    stale = log_in(make_person("stale"))
    stale.cookies["sessionid"] = "x" * 32
    with Watching(port, stale) as forged:
        assert forged.close_code() == 4401


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1.evil.example", "null", "file://"]
)
def test_a_page_of_another_site_is_refused(port, origin) -> None:
    with pytest.raises(InvalidStatus) as refused:
        Watching(port, log_in(make_person("alice")), origin=origin)
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://risk.example", "risk.example", True),
        ("https://risk.example", "risk.example:443", True),
        ("http://risk.example:80", "risk.example", True),
        ("http://risk.example:8080", "risk.example", False),
        ("https://RISK.example", "risk.EXAMPLE", True),
        ("https://console.example", "risk.example", True),  # CSRF_TRUSTED_ORIGINS
        ("http://console.example", "risk.example", False),
        ("http://rebound.example", "rebound.example", False),  # a host that is not ours
        (None, "rebound.example", False),
        ("", "risk.example", False),
        ("https://user@risk.example", "risk.example", False),
        ("https://[", "risk.example", False),
        (None, "risk.example", True),
        (None, "", False),
    ],
)
def test_which_origins_are_ours(settings, origin, host, allowed) -> None:
    settings.ALLOWED_HOSTS = ["risk.example"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example"]
    assert is_allowed(origin=origin, host=host) is allowed


def test_a_program_without_an_origin_may_watch(port) -> None:
    with Watching(port, log_in(make_person("alice")), origin=None) as program:
        assert program.next() == {"type": "hello", "head": 0}


def test_an_alert_is_on_every_screen_of_its_tenant_at_once(port) -> None:
    people = [make_person("alice"), make_person("bob"), make_manager(), make_person("carol", tenant="acme")]
    sockets = [Watching(port, log_in(person)) for person in people]
    assert [socket.next() for socket in sockets] == [{"type": "hello", "head": 0}] * 4
    time.sleep(0.3)

    start = time.monotonic()
    settle(make_hit())
    publish()
    frames = [socket.next() for socket in sockets[:3]]
    assert time.monotonic() - start < 1

    assert frames[0] == frames[1]
    assert frames[2]["type"] == "update", "a manager, whom it does not call, sees it all the same"
    assert frames[0] == {"type": "alert", "seq": 1, "alert": AlertOutbox.objects.get().event}
    alert = claim(alert_id=the_alert().alert_id, officer=people[0])
    publish()
    update = {
        "type": "update", "seq": 2, "alert_id": alert.alert_id,
        "status": "in_review", "assignee": "alice", "level": None, "version": 2,
    }  # fmt: skip
    assert [socket.news(1)[0] for socket in sockets[:3]] == [update] * 3
    assert sockets[3].silent()
    settle(make_hit("T9"), tenant="acme")
    publish()
    assert sockets[3].news(1)[0]["seq"] == 1
    assert sockets[0].silent()
    for one in sockets:
        one.socket.close()


def test_resume_gives_all_since_and_then_goes_on(port) -> None:
    settle(make_hit())
    tell(9)
    with Watching(port, log_in(make_person("alice"))) as officer:
        assert officer.next() == {"type": "hello", "head": 10}
        officer.say({"type": "resume", "after": 4})
        assert officer.seqs(6) == [5, 6, 7, 8, 9, 10]
        tell(2)
        assert officer.seqs(2) == [11, 12]
        officer.say({"type": "resume", "after": 12})
        assert officer.silent()
        officer.say({"type": "resume", "after": 0})
        assert officer.seqs(12) == list(range(1, 13))


@pytest.mark.parametrize("after", [-1, 11, 10**30, "4", 4.0, None, True, [4], {}])
def test_a_resume_that_cannot_be_is_a_reset(port, after) -> None:
    settle(make_hit())
    tell(9)
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        officer.say({"type": "resume", "after": after})
        assert officer.news(1) == [{"type": "reset"}]
        tell(1)
        assert officer.seqs(1) == [11]


def test_a_resume_past_what_is_kept_is_a_reset(port) -> None:
    settle(make_hit())
    tell(9)
    AlertOutbox.objects.filter(seq__lte=5).delete()
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        officer.say({"type": "resume", "after": 4})
        assert officer.news(1) == [{"type": "reset"}]
        officer.say({"type": "resume", "after": 5})
        assert officer.seqs(5) == [6, 7, 8, 9, 10]


def test_a_resume_among_live_frames_has_no_gap_and_no_double(port, monkeypatch) -> None:
    monkeypatch.setattr("risk.feed.selectors.PAGE", 7)
    settle(make_hit())
    tell(199)
    client = log_in(make_person("alice"))
    stop = threading.Event()

    def keep_telling() -> None:
        for _ in range(60):
            tell(1)
        stop.set()
        connections.close_all()

    thread = threading.Thread(target=keep_telling)
    thread.start()
    try:
        for _ in range(3):
            with Watching(port, client) as officer:
                hello = officer.next()
                officer.say({"type": "resume", "after": 3})
                count = hello["head"] - 3 + 5
                assert officer.seqs(min(count, 257), 20) == list(range(4, min(count, 257) + 4))
    finally:
        thread.join(60)
    with Watching(port, client) as officer:
        officer.next()
        officer.say({"type": "resume", "after": 0})
        assert officer.seqs(260, 20) == list(range(1, 261))


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 4000, "INVALID_JSON"),
        ('"resume"', "INVALID_REQUEST"),
        ("{}", "INVALID_REQUEST"),
        ('{"type": "dispose"}', "INVALID_REQUEST"),
        ('{"type": ["resume"]}', "INVALID_REQUEST"),
        (b"\x00\x01", "INVALID_REQUEST"),
        ("x" * 5000, "INVALID_REQUEST"),
    ],
)
def test_a_bad_frame_gets_an_answer_and_the_socket_lives(port, frame, code) -> None:
    settle(make_hit())
    publish()
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        officer.say(frame)
        answer = officer.news(1)[0]
        assert (answer["type"], answer["code"]) == ("error", code)
        officer.say({"type": "resume", "after": 0})
        assert officer.seqs(1) == [1]


def test_a_log_out_closes_this_logins_sockets_and_no_others(port, settings) -> None:
    settings.FEED_HEARTBEAT_SECONDS = settings.FEED_WATCH_SECONDS = 60  # the message alone
    alice = make_person("alice")
    desk, home, bob = log_in(alice), log_in(alice), log_in(make_person("bob"))
    with Watching(port, desk) as at_desk, Watching(port, home) as at_home, Watching(port, bob) as other:
        for socket in (at_desk, at_home, other):
            socket.next()
        until(lambda: any(one._source.subscribed for one in relays.values()), what="the process listens")
        start = time.monotonic()
        desk.post("/admin/logout/")
        assert at_desk.close_code() == 4401
        assert time.monotonic() - start < 2
        assert at_home.silent(0.3)
        assert other.silent(0.1)


@pytest.mark.parametrize("how", ["session deleted", "deactivated", "password changed", "role taken"])
def test_a_login_that_ends_otherwise_closes_with_the_next_heartbeat(port, how) -> None:
    alice = make_person("alice")
    client = log_in(alice)
    with Watching(port, client) as officer:
        officer.next()
        if how == "session deleted":
            client.session.flush()
        elif how == "deactivated":
            User.objects.filter(pk=alice.pk).update(is_active=False)
        elif how == "password changed":
            alice.set_password("another")
            alice.save()
        else:
            alice.groups.clear()
        assert officer.close_code() == (4403 if how == "role taken" else 4401)


def test_heartbeats_tell_the_head_and_fill_what_was_lost_on_the_way(port) -> None:
    settle(make_hit())
    publish()
    with Watching(port, log_in(make_person("alice"))) as officer:
        assert officer.next()["head"] == 1
        lose(2)
        assert officer.seqs(2) == [2, 3], "the heartbeat finds them"
        assert officer.next(3) == {"type": "heartbeat", "head": 3}
        lose(1)
        tell(1)
        assert officer.seqs(2) == [4, 5], "the next frame shows the gap before the heartbeat does"


def test_what_happens_while_redis_is_away_arrives_when_it_is_back(own_redis_server, port) -> None:
    settle(make_hit())
    publish()
    with Watching(port, log_in(make_person("alice"))) as officer, Watching(port, log_in(make_person("bob"))) as other:
        assert officer.next()["head"] == other.next()["head"] == 1
        tell(1)
        assert officer.seqs(1) == other.seqs(1) == [2]
        own_redis_server.kill()
        tell(3)
        assert AlertOutbox.objects.filter(published_at=None).count() == 3
        own_redis_server.start()
        base_redis.breaker.reset()
        publish()
        tell(2)
        assert officer.seqs(5, 10) == other.seqs(5, 10) == [3, 4, 5, 6, 7]
        assert officer.silent(1.5)


def test_a_socket_opened_while_redis_is_away_says_hello_and_catches_up(own_redis_server, port) -> None:
    settle(make_hit())
    publish()
    own_redis_server.kill()
    with Watching(port, log_in(make_person("alice"))) as officer:
        assert officer.next() == {"type": "hello", "head": 1}
        officer.say({"type": "resume", "after": 0})
        assert officer.seqs(1) == [1]
        tell(1)
        own_redis_server.start()
        base_redis.breaker.reset()
        publish()
        assert officer.seqs(1, 10) == [2]


def test_with_the_database_away_the_socket_stays_and_says_so(port, monkeypatch) -> None:
    settle(make_hit())
    publish()
    client = log_in(make_person("alice"))
    with Watching(port, client) as officer:
        officer.next()

        down, ask = threading.Event(), database.in_database

        async def in_database(read, *arguments, **named):
            if down.is_set():
                raise OperationalError(2006, "the server has gone")
            return await ask(read, *arguments, **named)

        monkeypatch.setattr(database, "in_database", in_database)
        down.set()
        assert officer.news(1)[0]["code"] == "DATABASE_UNAVAILABLE"
        officer.say({"type": "resume", "after": 0})
        seqs: list[int] = []
        while not seqs:
            seqs += [frame["seq"] for frame in officer.news(1) if frame["type"] != "error"]
        with Watching(port, client) as newcomer:
            assert newcomer.close_code() == 1011
        down.clear()
        tell(1)
        while len(seqs) < 2:  # after the last words of the outage
            seqs += [frame["seq"] for frame in officer.news(1) if frame["type"] != "error"]
        assert seqs == [1, 2], "the first while the database was away: it was at hand"


def test_the_login_is_read_and_neither_renewed_nor_ended(port) -> None:
    client = log_in(make_person("alice"))
    before = client.session.session_key
    with Watching(port, client) as officer:
        officer.next()
        assert officer.silent(1.5)
    assert before is not None
    assert client.session.session_key == before
    assert client.session.exists(before)
