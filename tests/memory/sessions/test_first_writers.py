"""Many who write first to a new session, at once: in threads of one process and in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, connections

from memory.sessions.drain import backlog, drain
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from tests.memory.sessions.helpers import append, drain_everything, let_expire, make_session, owner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[3]
WRITERS, APPENDS = 16, 50


def in_threads(count: int, work: Any) -> None:
    """Runs work(n) in so many threads that start together. Errors: what the first of them raised."""
    barrier, errors = threading.Barrier(count), list[BaseException]()

    def run(n: int) -> None:
        try:
            barrier.wait()
            work(n)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check_all_there(session: str, receipts: Sequence[tuple[int, str]]) -> None:
    """Each message under the number that its writer was told, no gap, each writer's in order, nothing buried."""
    drain_everything()
    assert backlog() == 0
    rows = list(
        AgentMessage.objects.filter(session_row_id=owner(session).pk).order_by("seq").values_list("seq", "content")
    )
    assert len(rows) == WRITERS * APPENDS
    assert sorted(receipts) == rows
    assert [seq for seq, _ in rows] == list(range(1, WRITERS * APPENDS + 1))
    for writer in range(WRITERS):
        mine = [content for _, content in rows if content.startswith(f"{writer}.")]
        assert mine == [f"{writer}.{n}" for n in range(APPENDS)]
    assert AgentSession.objects.filter(session_id=session).count() == 1
    assert MessageDeadLetter.objects.count() == 0


@pytest.mark.parametrize("state", ["new", "not in Redis"])
def test_sixteen_threads_write_first_to_one_session_while_it_is_drained(state: str) -> None:
    session = make_session()
    if state == "not in Redis":
        let_expire(session)  # each of them finds nothing there, and opens it
    receipts: list[tuple[int, str]] = []
    over = threading.Event()

    def drains() -> None:
        try:
            while not over.is_set():
                drain(entries=7)
        finally:
            connections.close_all()

    def writes(writer: int) -> None:
        for n in range(APPENDS):
            (receipt,) = append(session, f"{writer}.{n}")
            receipts.append((receipt.seq, f"{writer}.{n}"))

    drainers = [threading.Thread(target=drains) for _ in range(2)]
    for drainer in drainers:
        drainer.start()
    try:
        in_threads(WRITERS, writes)
    finally:
        over.set()
        for drainer in drainers:
            drainer.join()
    check_all_there(session, receipts)


def test_sixteen_threads_that_also_make_the_session(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 20  # so that they meet at new ranges again and again
    session, receipts = "chat-made-by-sixteen-at-once", list[tuple[int, str]]()

    def work(writer: int) -> None:
        make_session(session_id=session)
        for n in range(APPENDS):
            (receipt,) = append(session, f"{writer}.{n}", durability="sync" if n % 10 == 9 else "async")
            receipts.append((receipt.seq, f"{writer}.{n}"))

    in_threads(WRITERS, work)
    check_all_there(session, receipts)


WRITERS_PROGRAM = """
import json, multiprocessing, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from tests.memory.sessions.helpers import append, make_session
session, writers, appends = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
fork = multiprocessing.get_context("fork")
together = fork.Barrier(writers)

def write(writer):
    together.wait(60)  # so each process takes one writer's part
    make_session(session_id=session)
    return [(append(session, f"{writer}.{n}")[0].seq, f"{writer}.{n}") for n in range(appends)]

with fork.Pool(writers) as pool:
    print(json.dumps(pool.map(write, range(writers), chunksize=1)))
"""


@pytest.mark.mariadb  # the test database of SQLite is in memory: no other process can open it
def test_sixteen_processes_write_first_to_one_session(settings: Any) -> None:
    """Forked before anything is connected, as workers are: starting Django sixteen times would cost the most here."""
    session = "chat-of-sixteen-processes"
    name = connection.settings_dict["NAME"]
    done = subprocess.run(
        [sys.executable, "-c", WRITERS_PROGRAM, name, settings.REDIS_KEY_PREFIX, session, str(WRITERS), str(APPENDS)],
        capture_output=True, text=True, timeout=120, check=False, cwd=PROJECT,
        env={**os.environ, "REDIS_URL": django_settings.REDIS_URL},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    receipts = [tuple(receipt) for part in json.loads(done.stdout) for receipt in part]
    assert len(receipts) == WRITERS * APPENDS
    check_all_there(session, receipts)
