"""HTTP appends beside a bare endpoint of the same framework, over kept-alive connections."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable

from guard.access.services import issue_key
from tests.bench.turn import ANSWER, USER

TURN = json.dumps(
    {"messages": [{"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}]}, ensure_ascii=False
).encode()


def wait_until_serving(port: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=2):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _rate(port: int, path: Callable[[int], str], headers: dict[str, str], threads: int, seconds: float) -> float:
    counts = [0] * threads
    until = time.perf_counter() + seconds

    def work(n: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.perf_counter() < until:
            connection.request("POST", path(n), TURN, headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            counts[n] += 1
        connection.close()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


def http_rates(port: int, seconds: float, threads: int = 4) -> dict[str, float]:
    """Requests a second: the bare endpoint, and appends of one turn to as many sessions as there are threads.
    Interleaved in three rounds; the best round of each counts."""
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {issue_key(agent='customer').key}",
        "X-Actor-Id": "bench",
    }
    names = [f"bench-{uuid.uuid4().hex}" for _ in range(threads)]
    opening = http.client.HTTPConnection("127.0.0.1", port)
    for name in names:
        opening.request("POST", "/api/v1/sessions", json.dumps({"session_id": name}).encode(), headers)
        answer = opening.getresponse()
        assert answer.read()
        assert answer.status == 201
    best = {"bare": 0.0, "append": 0.0}
    for _ in range(3):
        best["bare"] = max(best["bare"], _rate(port, lambda n: "/bare/constant", headers, threads, seconds / 3))
        best["append"] = max(
            best["append"],
            _rate(port, lambda n: f"/api/v1/sessions/{names[n]}/messages", headers, threads, seconds / 3),
        )
    return best
