"""The embedded default's Redis: a child of `manage.py up` with its data under DATA_DIR."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import redis

from config.supervisor import redis_server
from config.supervisor.redis_server import RedisProblem

LEAVING_PATIENCE = 20.0  # seconds that a Redis which lost its parent gets to sync and go


class EmbeddedRedis:
    """command: how to start it; prepare(): what must be true before each start; wait_ready() afterwards."""

    def __init__(self, *, directory: Path, unix_socket: Path, url: str) -> None:
        self.directory = directory
        self.socket = unix_socket
        self.url = url
        self.binary = redis_server.find_binary()
        self.command = redis_server.arguments(self.binary, directory=directory, unix_socket=unix_socket)
        # With --daemonize no, redis writes the file and removes it when it ends in an orderly way.
        self._pid_file = directory / "redis.pid"
        self.command += ["--pidfile", str(self._pid_file)]

    def prepare(self) -> None:
        """1. Folders of our own, closed to others. 2. A Redis that outlived its parent has gone (two servers on one
        AOF would ruin it). 3. The data is not of a newer Redis than the binary.

        Errors: RedisProblem.
        """
        for folder in (self.directory, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.stat().st_uid != os.geteuid():
                raise RedisProblem(f"{folder} belongs to another user; remove it or choose another DATA_DIR.")
        self._let_the_last_one_leave()
        if (self.directory / "appendonlydir").is_dir() and redis_server.major_version(self.binary) < 7:
            raise RedisProblem(
                f"{self.directory} was written by Redis 7 or newer and {self.binary} is older and would not see it; "
                "install redis-server 7 or newer."
            )
        with suppress(FileNotFoundError):
            self.socket.unlink()

    def _let_the_last_one_leave(self) -> None:
        if redis_server.answers(self.url) != "away":
            client = redis.Redis.from_url(self.url, socket_timeout=5)
            with suppress(redis.exceptions.RedisError, OSError):
                client.shutdown()
        deadline = time.monotonic() + LEAVING_PATIENCE
        while pid := self._pid_of_the_last_one():
            if time.monotonic() > deadline:
                raise RedisProblem(f"another redis-server (pid {pid}) still works in {self.directory}; stop it first.")
            time.sleep(0.05)

    def _pid_of_the_last_one(self) -> int:
        """0 when the process of the pid file is gone or is not a Redis."""
        try:
            pid = int(self._pid_file.read_text().strip())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        return pid if b"redis" in name and state not in "ZX" else 0
