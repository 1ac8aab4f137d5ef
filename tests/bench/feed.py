"""The live feed with SOCKETS sockets on one process: from the commit to the last of them, how many frames a second, and
what an idle one weighs; beside Channels' own way with as many sockets and the same frame."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median

import psutil
from django.contrib.auth.models import User
from django.test import Client

from config.base.fields import canonical_json
from config.supervisor import children
from config.supervisor import process as processes
from config.supervisor.redis_server import free_port
from risk.alerts.models import AlertOutbox
from risk.feed.services import publish
from tests.bench.feed_layer import send_all
from tests.bench.publish import ALERTS_A_SECOND, PROJECT, open_alert
from tests.risk.alerts.people import make_person

SOCKETS = 2000
OF_ONE_PERSON = 20
WARM = 50  # sockets before memory is weighed: what a process allocates once
ROUNDS = 5
ONE_BY_ONE = 10  # alerts of a round
BURST = 100


class Crowd:
    """A process with many sockets, and when the last of them had each alert."""

    def __init__(self, port: int, path: str, sessions: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.feed_client", str(port), path],
            cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(sessions) + "\n")
        self.process.stdin.flush()
        self.open = False
        self.complete: list[float] = []
        self.closed = 0
        threading.Thread(target=self._listen, daemon=True).start()
        wait(lambda: self.open, "the sockets are open", 60)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "at" in said:
                self.complete.append(said["at"])
            self.closed += "closed" in said
            self.open = self.open or "open" in said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def wait(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)


def _sessions() -> list[str]:
    """A session key for each socket."""
    keys = []
    for n in range(SOCKETS // OF_ONE_PERSON):
        name = f"bench{n}"
        client = Client()
        client.force_login(User.objects.filter(username=name).first() or make_person(name))
        keys += [str(client.session.session_key)] * OF_ONE_PERSON
    return keys


@contextmanager
def _serving(command: tuple[str, ...], port: int) -> Iterator[psutil.Process]:
    server = processes.start(command, cwd=PROJECT)
    try:
        wait(lambda: _listens(port), "the server listens", 60)
        yield psutil.Process(server.pid)
    finally:
        processes.stop(server)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def feed_figures(seconds: float) -> dict[str, float]:
    """Of our own server: `p50`, `p99`, `max` from commit to last socket, `lost`, `rate` of alerts, `one by one` and
    `burst` in frames a second, `kib` of an idle socket, `cpu`
    microseconds of the server a frame of a burst, `closed` sockets."""
    sessions = _sessions()
    port = free_port()
    with _serving(children.web(host="127.0.0.1", port=port).command, port) as server:
        first = Crowd(port, "/ws/alerts/", sessions[:WARM])
        before = server.memory_info().rss
        crowd = Crowd(port, "/ws/alerts/", sessions[WARM:])
        time.sleep(2)
        found = {"kib": (server.memory_info().rss - before) / 1024 / (SOCKETS - WARM)}
        crowd.close()
        first.close()
        crowd = Crowd(port, "/ws/alerts/", sessions)
        found |= _delays(crowd, seconds)
        found["one by one"] = median(_rate(crowd, ONE_BY_ONE, at_once=False) for _ in range(ROUNDS))
        used = server.cpu_times()
        found["burst"] = median(_rate(crowd, BURST, at_once=True) for _ in range(ROUNDS))
        cpu = server.cpu_times()
        found["cpu"] = (cpu.user + cpu.system - used.user - used.system) * 1e6 / (ROUNDS * BURST * SOCKETS)
        found["closed"] = crowd.closed
        crowd.close()
    return found


def _delays(crowd: Crowd, seconds: float) -> dict[str, float]:
    committed: dict[str, float] = {}
    workers = [processes.start(child.command, cwd=PROJECT) for child in (children.beat(), children.worker("publish"))]
    try:
        open_alert(0, committed)
        wait(lambda: len(crowd.complete) == 1, "the worker publishes", 60)
        count = int(seconds * ALERTS_A_SECOND)
        start = time.monotonic()
        for number in range(1, count + 1):
            time.sleep(max(0.0, start + number / ALERTS_A_SECOND - time.monotonic()))
            open_alert(number, committed)
        took = time.monotonic() - start
        with suppress(AssertionError):
            wait(lambda: len(crowd.complete) > count, "the last is everywhere")
    finally:
        for worker in workers:
            processes.stop(worker)
    # One writer: the order of the commits is that of the numbers.
    waits = sorted(at - done for at, done in zip(crowd.complete[1:], list(committed.values())[1:], strict=False))
    return {
        "p50": waits[len(waits) // 2],
        "p99": waits[int(len(waits) * 0.99)],
        "max": waits[-1],
        "rate": count / took,
        "lost": float(count - len(waits)),
    }


def _rate(crowd: Crowd, alerts: int, *, at_once: bool) -> float:
    """Frames a second to all sockets, from the publisher's first query to the last socket's last frame."""
    events = list(AlertOutbox.objects.filter(kind="alert").values_list("alert_id", "event")[:1]) * alerts
    done = len(crowd.complete) + alerts
    start = time.monotonic()
    for size in (alerts,) if at_once else (1,) * alerts:
        AlertOutbox.objects.bulk_create(
            AlertOutbox(tenant="default", kind="alert", alert_id=pk, event=event) for pk, event in events[:size]
        )
        publish(at_once=True)
    wait(lambda: len(crowd.complete) >= done, "all have all", 60)
    return alerts * SOCKETS / (crowd.complete[done - 1] - start)


def layer_rate() -> tuple[float, float]:
    """Of `group_send`: frames a second, and KiB of an idle socket."""
    event = AlertOutbox.objects.filter(kind="alert").values_list("event", flat=True)[0]
    text = canonical_json({"type": "alert", "seq": 123456, "alert": event})
    port = free_port()
    command = (
        *(sys.executable, "-m", "uvicorn", "tests.bench.feed_layer:application", "--port", str(port)),
        *("--ws", "websockets-sansio", "--ws-per-message-deflate", "false", "--lifespan", "off"),
        *("--log-level", "warning", "--no-access-log"),
    )
    with _serving(command, port) as server:
        first = Crowd(port, "/plain/", [""] * WARM)
        before = server.memory_info().rss
        crowd = Crowd(port, "/plain/", [""] * (SOCKETS - WARM))
        kib = (server.memory_info().rss - before) / 1024 / (SOCKETS - WARM)
        first.close()
        rates = []
        for _ in range(3):
            done = len(crowd.complete) + ONE_BY_ONE
            start = time.monotonic()
            send_all([text] * ONE_BY_ONE)
            wait(lambda done=done: len(crowd.complete) >= done, "all have all", 120)  # type: ignore[misc]
            rates.append(ONE_BY_ONE * (SOCKETS - WARM) / (crowd.complete[done - 1] - start))
        crowd.close()
    return median(rates), kib
