"""What a socket may not do: say too much, be one too many, take nothing. Others never notice."""

from __future__ import annotations

import contextlib
import gc
import time

import psutil
import pytest

from risk.feed import tenant
from risk.feed.relay import _relays as relays
from risk.feed.services import publish
from tests.risk.alerts.people import make_hit, make_person, settle
from tests.risk.feed.server import Watching, log_in, serving
from tests.risk.feed.telling import tell, tell_long
from tests.stack import until

pytestmark = pytest.mark.django_db(transaction=True)


def sockets() -> int:
    return sum(len(relay.sockets) for relay in relays.values())


def test_too_many_messages_close_the_socket_with_a_code(port) -> None:
    settle(make_hit())
    publish()
    client = log_in(make_person("alice"))
    with Watching(port, client) as officer, Watching(port, client) as other:
        officer.next(), other.next()
        for _ in range(20):
            officer.say({"type": "resume", "after": 0})
        assert officer.news(1)[0]["seq"] == 1
        for _ in range(20):
            officer.say("{")
        assert officer.close_code() == 4429
        tell(1)
        assert other.seqs(1) == [2], "the same person's other socket is another"


# Masked, as clients send them: a ping of 125 bytes, a piece of a message without an end, a pong that nobody asked for.
PING = b"\x89\xfd\0\0\0\0" + b"x" * 125
PIECE = b"\x00\x80\0\0\0\0"
PONG = b"\x8a\x80\0\0\0\0"


@pytest.mark.parametrize("frame", [PING, PIECE, PONG], ids=["pings", "pieces", "pongs"])
def test_a_flood_of_frames_that_are_no_messages_ends_the_connection_and_costs_others_nothing(port, frame) -> None:
    settle(make_hit())
    publish()
    with (
        Watching(port, log_in(make_person("alice")), small=True) as flood,
        Watching(port, log_in(make_person("bob"))) as other,
    ):
        flood.next(), other.next()
        gc.collect()
        before = psutil.Process().memory_info().rss
        raw = flood.socket.socket
        if frame is PIECE:
            raw.sendall(b"\x01\x81\0\0\0\0x")  # the message that it goes on with
        with contextlib.suppress(OSError):
            for _ in range(200):
                raw.sendall(frame * 1000)  # 25 MB of pings, and as much of answers that nobody reads
        assert psutil.Process().memory_info().rss - before < 30_000_000
        until(lambda: sockets() == 1, seconds=10, what="it is out of the fan-out")
        tell(1)
        assert other.seqs(1) == [2]


def test_a_client_may_ask_whether_the_server_is_there(port) -> None:
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        for _ in range(10):
            assert officer.socket.ping().wait(5), "answered"


def test_a_message_that_is_far_too_large_ends_the_connection(port) -> None:
    with Watching(port, log_in(make_person("alice"))) as officer:
        officer.next()
        officer.say("x" * 70_000)
        assert officer.close_code() == 1009
    until(lambda: sockets() == 0, what="it is out of the fan-out")


def test_a_person_has_so_many_sockets_and_a_process_too(port, settings) -> None:
    settings.FEED_SOCKETS_PER_PERSON, settings.FEED_SOCKETS = 2, 3
    alice, bob = log_in(make_person("alice")), log_in(make_person("bob"))
    with Watching(port, alice) as first, Watching(port, alice) as second:
        first.next(), second.next()
        with Watching(port, alice) as third:
            assert third.close_code() == 4409
        with Watching(port, bob) as other:
            assert other.next()["type"] == "hello"
            with Watching(port, bob) as fourth:
                assert fourth.close_code() == 1013
        until(lambda: sockets() == 2, what="who has gone is not counted")
        with Watching(port, bob) as again:
            assert again.next()["type"] == "hello"


def test_a_screen_that_does_not_read_holds_up_no_other_and_goes_on_where_it_was(port, monkeypatch) -> None:
    monkeypatch.setattr(tenant, "KEPT_BYTES", 1_000_000)  # what it missed is in the outbox alone
    settle(make_hit())
    publish()
    with (
        Watching(port, log_in(make_person("alice")), small=True) as idle,
        Watching(port, log_in(make_person("bob"))) as busy,
    ):
        idle.next(), busy.next()
        start = time.monotonic()
        tell_long(200)
        assert busy.seqs(200, 20) == list(range(2, 202))
        assert time.monotonic() - start < 5
        assert idle.seqs(200, 20) == list(range(2, 202))
        tell(1)
        assert idle.seqs(1) == busy.seqs(1) == [202]


def test_clients_that_take_nothing_are_let_go_with_a_code_and_cost_no_memory(port, monkeypatch) -> None:
    monkeypatch.setattr("risk.feed.consumer.SEND_SECONDS", 2.0)
    settle(make_hit())
    publish()
    client = log_in(make_person("alice"))
    stuck = [Watching(port, client, small=True) for _ in range(20)]
    with Watching(port, log_in(make_person("bob"))) as busy:
        busy.next()
        until(lambda: sockets() == 21, what="all are there")
        tell_long(50)  # what is allocated once
        assert busy.seqs(50, 20) == list(range(2, 52))
        gc.collect()
        before = psutil.Process().memory_info().rss
        tell_long(200)  # 6 MB, and 120 if it were kept for each of them
        assert busy.seqs(200, 20) == list(range(52, 252))
        assert psutil.Process().memory_info().rss - before < 40_000_000
        until(lambda: sockets() == 1, seconds=10, what="the stuck sockets are gone from the fan-out")
    codes = {one.close_code(10) for one in stuck[:3]}
    assert codes == {1013}
    for one in stuck[3:]:
        one.socket.socket.close()


def test_another_asgi_server_serves_the_same_feed(port) -> None:
    settle(make_hit())
    publish()
    with serving("websockets-sansio") as number:
        client = log_in(make_person("alice"))
        with Watching(number, client, small=True) as idle, Watching(number, client) as officer:
            idle.next(), officer.next()
            officer.say({"type": "resume", "after": 0})
            assert officer.seqs(1) == [1]
            tell_long(200)
            assert officer.seqs(200, 20) == idle.seqs(200, 20) == list(range(2, 202))
            client.post("/admin/logout/")
            assert officer.close_code() == idle.close_code() == 4401
