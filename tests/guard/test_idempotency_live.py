"""The whole installation: a server that is killed in the middle of a write with an Idempotency-Key."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from config.base.env import database_from_url
from tests.stack import LiveStack, until

# Starts an installation and waits for a lease to end. One table must be locked while others are written.
pytestmark = [pytest.mark.slow, pytest.mark.mariadb]


@contextmanager
def nobody_writes(stack: LiveStack) -> Iterator[None]:
    """Whoever opens a session meanwhile waits for the database, as in a long migration."""
    import MySQLdb

    options = database_from_url("DATABASE_URL", stack.env["DATABASE_URL"])
    connection = MySQLdb.connect(
        host=options["HOST"],
        port=int(str(options["PORT"])),
        user=options["USER"],
        passwd=options["PASSWORD"],
        db=options["NAME"],
    )
    connection.cursor().execute("LOCK TABLES agent_session WRITE")
    try:
        yield
    finally:
        connection.close()


def open_session(stack: LiveStack, key: str) -> tuple[int, Mapping[str, str], bytes]:
    """Status (0: the server went away), headers and body."""
    request = urllib.request.Request(
        f"{stack.url}/api/v1/sessions",
        data=json.dumps({"customer_id": "cust-1"}).encode(),
        headers={
            "Authorization": f"Bearer {key}",
            "X-Actor-Id": "adv-1",
            "Content-Type": "application/json",
            "Idempotency-Key": "once",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()
    except OSError:
        return 0, {}, b""


def test_killed_in_the_middle_the_key_is_free_when_the_lease_is_over(live_stack: LiveStack) -> None:
    key = live_stack.agent_key("advisor")
    died: list[Any] = []
    client = live_stack.redis.client()
    with nobody_writes(live_stack):
        first = threading.Thread(target=lambda: died.append(open_session(live_stack, key)))
        first.start()
        until(lambda: client.exists("guard:idem:adv-1:once"), what="the request is at work")
        status, headers, _ = open_session(live_stack, key)
        assert (status, headers["Retry-After"]) == (409, "1")
        live_stack.kill("web")
        first.join(30)
    assert died == [(0, {}, b"")]
    live_stack.start("web")
    live_stack.wait_until_serving()

    def settled() -> Any:
        answer = open_session(live_stack, key)
        return answer if answer[0] != 409 else None

    status, headers, body = until(settled, seconds=30, what="the dead holder's lease ends")
    assert (status, "Idempotent-Replayed" in headers) == (201, False)
    status, headers, again = open_session(live_stack, key)
    assert (status, headers["Idempotent-Replayed"], again) == (201, "true", body)
    assert live_stack.query("SELECT COUNT(*) FROM agent_session") == [(1,)]
