"""A database that holds its callers: a lock that nobody lets go of, a network that swallows answers. Whoever waits
waits for a bounded time, and not one after the other."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection
from django.db.utils import ConnectionHandler

from config.base import db
from config.base.env import database_from_url, serves
from memory.sessions import services
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import COMMITTED, QUEUED
from tests.memory.sessions.helpers import append, make_session, stored

pytestmark = pytest.mark.django_db(transaction=True)


def url(port: int | None = None) -> str:
    default = connection.settings_dict
    login = quote(str(default["USER"]), safe="") + (
        f":{quote(default['PASSWORD'], safe='')}" if default["PASSWORD"] else ""
    )
    return f"mysql://{login}@127.0.0.1:{port or default['PORT']}/{default['NAME']}"


@contextmanager
def locked_table() -> Iterator[None]:
    """Somebody else's LOCK TABLES on the messages."""
    with (
        closing(ConnectionHandler({"default": database_from_url("X", url())})["default"]) as other,
        other.cursor() as cursor,
    ):
        cursor.execute("LOCK TABLES agent_message WRITE")
        yield
        cursor.execute("UNLOCK TABLES")


class Proxy:
    """Between a client and MySQL; `pause()` swallows what either says from then on."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._paused = target, threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                there = socket.create_connection(self._target)
                self._open += [client, there]
                for source, sink in ((client, there), (there, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._paused.is_set():
                    sink.sendall(data)

    def pause(self) -> None:
        self._paused.set()

    def close(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.close()


# --- time-outs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["/opt/x/bin/gunicorn", "config.wsgi:application"], True),
        (["/opt/x/uvicorn/__main__.py", "config.asgi:application"], True),
        (["/opt/x/celery/__main__.py", "-A", "config", "worker"], True),
        (["agent.py"], True),
        (["manage.py", "runserver"], True),
        (["manage.py", "reconcile", "--fix"], False),
        (["/opt/x/manage.py", "up"], False),
        (["/opt/x/bin/django-admin", "migrate"], False),
        (["/opt/x/django/__main__.py", "migrate"], False),
        ([], True),
    ],
)
def test_who_serves_has_time_outs_and_a_command_that_may_scan_has_none(argv: list[str], wanted: bool) -> None:
    assert serves(argv) is wanted


def test_they_are_the_drivers_options() -> None:
    def options(timeout: int | None, more: str = "") -> Any:
        return database_from_url("X", f"mysql://root@127.0.0.1/x{more}", timeout=timeout)["OPTIONS"]

    served = options(10)
    assert (served["read_timeout"], served["write_timeout"], served["connect_timeout"]) == (10, 10, 5)
    assert options(2)["connect_timeout"] == 2
    assert options(2, "?connect_timeout=7")["connect_timeout"] == 7
    assert not {"read_timeout", "write_timeout"} & set(options(None))
    assert "lock_wait" not in options(None)["init_command"]
    assert django_settings.DATABASE_TIMEOUT == 10


@pytest.mark.mariadb
def test_locks_are_waited_for_five_seconds() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@sql_mode")
        assert cursor.fetchone() == (5, 5, "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION")
    # One that was waited for whole is not waited for again.
    assert db.LONGEST_SECONDS < 5


@pytest.mark.mariadb
def test_a_network_that_swallows_answers_costs_one_time_out() -> None:
    default = connection.settings_dict
    with closing(Proxy((str(default["HOST"]), int(default["PORT"])))) as proxy:
        entry = database_from_url("X", url(proxy.port), timeout=1)
        with closing(ConnectionHandler({"default": entry})["default"]) as through, through.cursor() as cursor:
            cursor.execute("SELECT 1")
            proxy.pause()
            began = time.monotonic()
            with pytest.raises(OperationalError):
                cursor.execute("SELECT 2")
            assert time.monotonic() - began < 3
        began = time.monotonic()
        with pytest.raises(OperationalError):
            ConnectionHandler({"default": entry})["default"].ensure_connection()
        assert time.monotonic() - began < 3


# --- the queue's own way out --------------------------------------------------------------------------------------


@pytest.mark.mariadb
def test_a_locked_table_is_waited_for_once_and_nothing_is_lost() -> None:
    session = make_session()
    append(session, "before", durability="sync")
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1")
    patience, db.LONGEST_SECONDS = db.LONGEST_SECONDS, 0.5
    try:
        with locked_table():
            began = time.monotonic()
            assert append(session, "0", durability="sync")[0].state == QUEUED
            assert 0.5 < time.monotonic() - began < 3
            began = time.monotonic()
            assert {append(session, str(n), durability="sync")[0].state for n in range(1, 20)} == {QUEUED}
            assert time.monotonic() - began < 1
    finally:
        db.LONGEST_SECONDS = patience
    assert backlog() == 20
    drain()
    assert [content for _, content in stored(session)] == ["before", *map(str, range(20))]


def test_after_a_failure_one_tries_each_five_seconds(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.SESSION_BACKLOG_SYNC = 0  # async ones are to commit too
    session = make_session()
    tried: list[int] = []
    clock = [1000.0]

    def away(entries: Any) -> Any:
        tried.append(len(entries))
        raise OperationalError(2013, "Lost connection")

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with monkeypatch.context() as patch:
        patch.setattr(services, "persist", away)
        for durability in ("sync", "async", "sync", "async"):
            assert append(session, "a", durability=durability)[0].state == QUEUED
        assert tried == [1]
        clock[0] += 5.1
        for _ in range(3):
            assert append(session, "b", "b")[0].state == QUEUED
        assert tried == [1, 2]
    clock[0] += 5.1
    # It is back: the first that tries says so to all.
    for _ in range(3):
        assert append(session, "c", durability="sync")[0].state == COMMITTED
    drain()
    assert [content for _, content in stored(session)] == [*"aaaa", *"bbbbbb", *"ccc"]


def test_a_lost_race_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()

    def deadlock(entries: Any) -> Any:
        raise OperationalError(1213, "Deadlock found")

    with monkeypatch.context() as patch:
        patch.setattr(services, "persist", deadlock)
        assert append(session, "a", durability="sync")[0].state == QUEUED
    assert append(session, "b", durability="sync")[0].state == COMMITTED
