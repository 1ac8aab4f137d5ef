"""Sockets that come and go while alerts flow, and a network that is cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading

import pytest
from django.db import connections
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from risk.feed.relay import _relays as relays
from risk.feed.services import publish
from tests.risk.alerts.people import make_hit, make_manager, make_person, settle
from tests.risk.feed.server import Watching, log_in
from tests.risk.feed.telling import lose, tell
from tests.stack import until

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = 60
STAY, COME_AND_GO = 20, 280


def test_among_300_that_come_and_go_those_who_stay_miss_nothing(port) -> None:
    settle(make_hit())
    publish()
    cookies = [log_in(make_person(f"p{n}")).cookies["sessionid"].value for n in range(20)]
    cookies += [log_in(make_manager(f"m{n}")).cookies["sessionid"].value for n in range(5)]
    chance = random.Random(7)
    over, gaps = threading.Event(), []

    def tell_all() -> None:
        try:
            for n in range(EVENTS):
                if n % 10 == 9:
                    lose(1)  # the next one shows the hole
                elif n % 10 == 5:
                    settle(make_hit(f"T{n}", customer=f"C{n}"))  # calls officers, and no manager
                    publish()
                else:
                    tell(1)
        finally:
            over.set()
            connections.close_all()

    def open_socket(n: int) -> connect:
        headers = {"Cookie": f"sessionid={cookies[n % len(cookies)]}"}
        return connect(f"ws://127.0.0.1:{port}/ws/alerts/", additional_headers=headers, compression=None)

    async def stay(n: int) -> list[int]:
        async with open_socket(n) as socket:
            assert json.loads(await socket.recv()) == {"type": "hello", "head": 1}
            here.release()
            seen = [1]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(40):
                    while seen[-1] < EVENTS + 1:
                        frame = json.loads(await socket.recv())
                        if "seq" in frame:
                            seen.append(frame["seq"])
            return seen

    async def come_and_go(n: int) -> None:
        """Comes again and again, goes on from where it was, or begins anew; leaves politely, or just drops."""
        last: int | None = None
        while not over.is_set():
            await asyncio.sleep(chance.uniform(0, 2.0))
            try:
                async with asyncio.timeout(20):
                    socket = await open_socket(n)
                    hello = json.loads(await socket.recv())
                    resumes = last is not None and chance.random() < 0.8
                    if resumes:
                        await socket.send(json.dumps({"type": "resume", "after": last}))
                    else:
                        last = hello["head"]
                    for _ in range(chance.randrange(6)):
                        frame = json.loads(await asyncio.wait_for(socket.recv(), 1))
                        if "seq" in frame:
                            if resumes and frame["seq"] > last + 1:
                                continue  # asked so late that what is new was under way: what was missed follows
                            if frame["seq"] != last + 1:
                                gaps.append((n, last, frame["seq"]))
                            last, resumes = frame["seq"], False
            except (TimeoutError, ConnectionClosed, OSError):
                pass
            if chance.random() < 0.5:
                await socket.close()
            else:
                socket.transport.abort()

    async def crowd() -> list[list[int]]:
        staying = [asyncio.create_task(stay(n)) for n in range(STAY)]
        for _ in range(STAY):
            await here.acquire()
        thread.start()
        async with asyncio.TaskGroup() as group:
            for n in range(COME_AND_GO):
                group.create_task(come_and_go(n))
        return await asyncio.gather(*staying)

    here = asyncio.Semaphore(0)
    thread = threading.Thread(target=tell_all)
    seen = asyncio.run(crowd())
    thread.join()
    assert seen == [list(range(1, EVENTS + 2))] * STAY
    assert gaps == []
    until(lambda: not any(relay.sockets or relay._feeds for relay in relays.values()), what="nothing is left of them")


def test_what_is_told_while_a_network_is_cut_is_there_afterwards_once_and_in_order(port) -> None:
    settle(make_hit())
    publish()
    client = log_in(make_person("alice"))
    officer = Watching(port, client)
    officer.next()
    tell(2)
    seen = officer.seqs(2)
    officer.socket.socket.close()  # without a word
    for n in range(20):
        settle(make_hit(f"N{n}", customer=f"N{n}"))
        publish()
    with Watching(port, client) as again:
        assert again.next() == {"type": "hello", "head": 23}
        again.say({"type": "resume", "after": seen[-1]})
        tell(1)
        frames = again.news(21)
        assert [frame["seq"] for frame in frames] == list(range(4, 25))
        assert len({frame["alert"]["alert_id"] for frame in frames[:20]}) == 20
        assert again.silent(1.2)
