"""`manage.py up`: the whole installation as one foreground command. `make run` starts it."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from typing import IO, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import BaseCommand, call_command, get_commands
from django.core.management.color import supports_color
from django.db import connections
from django.db.utils import DatabaseError

from config.base.errors import DomainError
from config.supervisor import children
from config.supervisor.embedded import EmbeddedRedis
from config.supervisor.output import Terminal
from config.supervisor.redis_server import RedisProblem, answers
from config.supervisor.supervisor import CrashLoop, Interrupted, Supervisor

READY_PATIENCE = 120.0  # seconds until we say what is still missing, and go on waiting


class Refused(Exception):
    """Nothing was started; the text says why and what to do. Exit code 2."""


class Command(BaseCommand):
    help = (
        "Starts everything in the foreground: Redis and SQLite of its own unless REDIS_URL and DATABASE_URL are set, "
        "migrations, demo data (own SQLite only, once), web, workers and beat. Ctrl-C stops all of it. "
        "Exit code 0 after an orderly stop, 1 when a process cannot start, 2 when nothing was started."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="HTTP and websockets (default 8000)")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")

    def handle(self, *args: Any, **options: Any) -> None:
        colour = supports_color() and not options["no_color"]
        terminal = Terminal(sys.stdout, colour=colour or bool(options["force_color"]))
        host, port = options["host"], options["port"]
        try:
            with _data_lock():
                _check_port(host, port)
                _run(terminal, host=host, port=port)
        except Refused as error:
            self.stderr.write(f"up: {error}")
            sys.exit(2)
        except CrashLoop as error:
            self.stderr.write(f"up: {error}")
            sys.exit(1)


# --- before anything starts -------------------------------------------------------------------------------------


def _data_lock() -> IO[str]:
    """The lock on DATA_DIR, held while the file is open. Errors: Refused, naming the process that holds it."""
    path = settings.DATA_DIR / "up.lock"
    try:
        file = path.open("a+")
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error.strerror}. Choose another DATA_DIR.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise Refused(
            f"this installation runs already (pid {holder}, data in {settings.DATA_DIR}). "
            "Stop that one first, or start another with its own DATA_DIR and port."
        ) from None
    file.seek(0)
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()
    return file


def _check_port(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise Refused(f"port {port} does not exist; use 1 to 65535.")
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        raise Refused(f"host {host!r} is no address of this machine; try 127.0.0.1 or 0.0.0.0.") from None
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                other = port + 1 if port < 65535 else 8001
                raise Refused(
                    f"port {port} is taken by another program. Choose another one: make run PORT={other} "
                    f"(or manage.py up --port {other})."
                ) from None
            raise Refused(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}.") from None


# --- from nothing to running ------------------------------------------------------------------------------------


def _run(terminal: Terminal, *, host: str, port: int) -> None:
    """1. Redis (ours or theirs). 2. Tables. 3. Demo data. 4. Web, workers, beat. 5. Ready: the box. 6. Until asked
    to stop."""
    supervisor = Supervisor(
        terminal,
        env={"DATA_DIR": str(settings.DATA_DIR), "PYTHONUNBUFFERED": "1"},
        cwd=settings.BASE_DIR,
    )
    began = time.monotonic()
    with supervisor.signals():
        try:
            redis = _start_redis(supervisor, terminal)
            _migrate(terminal)
            _seed(terminal)
            for child in children.all_of(host=host, port=port):
                supervisor.add(child)
            supervisor.preparing = False
            _wait_ready(supervisor, terminal, host=host, port=port)
            if supervisor.was_ready:
                terminal.box(_welcome(host, port, redis, time.monotonic() - began))
            while not supervisor.asked_to_stop:
                supervisor.turn(60.0)
        except Interrupted:
            pass
        except RedisProblem as error:
            raise Refused(str(error)) from None
        finally:
            supervisor.stop_all()
    terminal.line("up", "all stopped")


def _start_redis(supervisor: Supervisor, terminal: Terminal) -> EmbeddedRedis | None:
    if not settings.EMBEDDED_REDIS:
        if answers(settings.REDIS_URL, timeout=2) == "away":
            terminal.line("up", "Redis (REDIS_URL) does not answer; going on without it, slower, until it does")
        return None
    redis = EmbeddedRedis(
        directory=settings.DATA_DIR / "redis", unix_socket=settings.EMBEDDED_REDIS_SOCKET, url=settings.REDIS_URL
    )
    supervisor.add(children.embedded_redis(redis.command), before_start=redis.prepare)
    silent_until = time.monotonic() + 20
    while (state := answers(redis.url)) != "ready":
        if state == "loading":  # a large AOF takes as long as it takes
            silent_until = time.monotonic() + 20
        if time.monotonic() > silent_until:
            raise RedisProblem("redis-server runs and does not answer; see its lines above.")
        supervisor.turn(0.05)
    return redis


def _migrate(terminal: Terminal) -> None:
    terminal.line("up", "database: bringing the tables up to date")
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except DatabaseError as error:
        number = error.args[0] if error.args else ""
        raise Refused(
            f"the database (DATABASE_URL) cannot be used: {type(error).__name__} {number}. "
            "Check that the server runs, that the database exists and that the account may create tables."
        ) from None
    finally:
        connections.close_all()


def _seed(terminal: Terminal) -> None:
    if not settings.EMBEDDED_DATABASE or "seed_demo" not in get_commands():
        return
    terminal.line("up", "demo data: written once, when there is none")
    said = io.StringIO()
    try:
        call_command("seed_demo", if_empty=True, stdout=said)
    except (DomainError, SystemExit):
        raise Refused("the demo data could not be written; the reason is above.") from None
    finally:
        connections.close_all()
    for line in said.getvalue().splitlines():
        terminal.line("up", line)


def _wait_ready(supervisor: Supervisor, terminal: Terminal, *, host: str, port: int) -> None:
    """Turns the loop until /health/ready answers 200, or somebody asks us to stop."""
    complain_at = time.monotonic() + READY_PATIENCE
    while not supervisor.asked_to_stop:
        supervisor.turn(0.2)
        reasons = _not_ready(host, port)
        if not reasons:
            supervisor.was_ready = True
            return
        if time.monotonic() > complain_at:
            terminal.line("up", f"not ready yet: {'; '.join(reasons)}")
            complain_at = time.monotonic() + READY_PATIENCE


def _reachable(host: str) -> str:
    """The address under which this machine reaches what listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _not_ready(host: str, port: int) -> list[str]:
    try:
        with urllib.request.urlopen(f"http://{_reachable(host)}:{port}/health/ready", timeout=2):
            return []
    except urllib.error.HTTPError as error:
        try:
            return [str(reason) for reason in json.load(error)["reasons"]]
        except (ValueError, KeyError, TypeError):
            return [f"HTTP {error.code}"]
    except OSError:
        return ["the web process does not answer yet"]


def _welcome(host: str, port: int, redis: EmbeddedRedis | None, seconds: float) -> list[str]:
    base = f"http://{_reachable(host)}:{port}"
    lines = [
        f"Xinghuo is ready ({seconds:.0f} s)",
        "",
        f"console    {base}/admin/",
        *_logins(),
        f"API        {base}/api/v1/docs",
        f"health     {base}/health/ready",
    ]
    if redis is not None:
        lines.append(f"Redis      redis-cli -s {redis.socket}")
    else:
        where = urlsplit(settings.REDIS_URL)
        lines.append(f"Redis      {where.hostname or where.path}{f':{where.port}' if where.port else ''}")
    lines += [f"data       {settings.DATA_DIR}", "", "Ctrl-C stops everything; the data stays."]
    return lines


def _logins() -> list[str]:
    try:
        demo = json.loads((settings.DATA_DIR / "demo_logins.json").read_text(encoding="utf-8"))
        users = [f"{user['username']} ({user['role']})" for user in demo["users"]]
        password = str(demo["password"])
    except (OSError, ValueError, KeyError, TypeError):
        return ["login      .venv/bin/python manage.py createsuperuser makes one"]
    return [
        f"login      {users[0] if users else '-'}",
        *(f"           {user}" for user in users[1:]),
        f"password   {password}  (all of them)",
    ]
