"""The whole way, in a running installation: a finding is committed, the worker publishes, the screen shows it."""

from __future__ import annotations

import http.cookiejar
import json
import re
import time
import urllib.parse
import urllib.request

import pytest
from websockets.sync.client import connect

from tests.stack import LiveStack, until

pytestmark = pytest.mark.slow

_SETTLE = """
from tests.risk.alerts.people import make_hit, settle
import json, time
for n in range({first}, {last}):
    settle(make_hit(f"T{{n}}", customer=f"C{{n:04d}}"))
    print(json.dumps([n, time.time()]))
    time.sleep({pause})
time.sleep(0.5)
"""


def log_in(stack: LiveStack, name: str, password: str) -> str:
    """The session cookie, by the login page."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    page = browser.open(f"{stack.url}/admin/login/").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token is not None
    form = {"csrfmiddlewaretoken": token[1], "username": name, "password": password, "next": "/admin/"}
    browser.open(f"{stack.url}/admin/login/", urllib.parse.urlencode(form).encode()).read()
    return next(cookie.value or "" for cookie in jar if cookie.name == "sessionid")


def watch(stack: LiveStack, cookie: str):
    socket = connect(
        f"{stack.ws_url}/ws/alerts/", additional_headers={"Cookie": f"sessionid={cookie}"}, origin=stack.url
    )
    assert json.loads(socket.recv(timeout=10))["type"] == "hello"
    return socket


def seqs(socket, count: int, seconds: float) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        frame = json.loads(socket.recv(timeout=max(0.01, deadline - time.monotonic())))
        if "seq" in frame:
            found.append(frame["seq"])
    return found


def test_from_the_commit_to_the_screen_and_through_kills(live_stack: LiveStack) -> None:
    cookie = log_in(live_stack, "alice", live_stack.staff("alice", "risk_officer"))
    anonymous = connect(f"{live_stack.ws_url}/ws/alerts/")
    with pytest.raises(Exception, match="4401"):
        anonymous.recv(timeout=10)

    with watch(live_stack, cookie) as socket:
        # A dozen alerts one by one: how long from the commit to the frame.
        code = _SETTLE.format(first=0, last=12, pause=0.4)
        said = live_stack.directory / "scan.log"
        with said.open("wb") as log:
            scan = live_stack.popen("shell", "--no-imports", "-v", "0", "-c", code, stdout=log)
        arrived: list[float] = []
        while len(arrived) < 12:
            frame = json.loads(socket.recv(timeout=60))
            if frame["type"] == "alert":
                arrived.append(time.time())
        scan.wait(30)
        told = [json.loads(line)[1] for line in said.read_text().splitlines() if line.startswith("[")]
        delays = sorted(got - at for got, at in zip(arrived, told, strict=True))
        print(f"commit to frame: median {delays[6] * 1000:.0f} ms, worst {delays[-1] * 1000:.0f} ms")
        assert delays[6] < 0.5
        assert delays[-1] < 2.5  # a lost nudge waits for beat

        # kill -9 of the publisher and then of Redis in the middle: nothing lost, nothing twice, in order
        scan = live_stack.popen(
            "shell", "--no-imports", "-v", "0", "-c", _SETTLE.format(first=100, last=160, pause=0.05)
        )
        got = seqs(socket, 10, 60)
        live_stack.kill("publish")
        time.sleep(0.7)
        live_stack.start("publish")
        got += seqs(socket, 10, 60)
        live_stack.redis.kill()
        time.sleep(1)
        live_stack.redis.start()
        scan.wait(60)
        got += seqs(socket, 40, 60)
        assert got == list(range(13, 73))
        left = "SELECT COUNT(*) FROM alert_outbox WHERE published_at IS NULL"
        until(lambda: live_stack.query(left) == [(0,)], what="all is marked")

    # kill -9 of the web process in the middle: the socket breaks, and goes on from where it was
    with watch(live_stack, cookie) as socket:
        code = _SETTLE.format(first=200, last=240, pause=0.05)
        scan = live_stack.popen("shell", "--no-imports", "-v", "0", "-c", code)
        got = seqs(socket, 10, 60)
        live_stack.kill("web")
        live_stack.start("web")
        live_stack.wait_until_serving()
    with watch(live_stack, cookie) as socket:
        socket.send(json.dumps({"type": "resume", "after": got[-1]}))
        got += seqs(socket, 30, 60)
        assert got == list(range(73, 113))
        scan.wait(60)

    with watch(live_stack, cookie) as socket:
        socket.send(json.dumps({"type": "resume", "after": 0}))
        assert seqs(socket, 112, 20) == list(range(1, 113))
