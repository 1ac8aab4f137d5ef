"""`manage.py up` for real: the embedded default from nothing, kills, second starts, and what is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from config.supervisor import process as processes
from config.supervisor.redis_server import free_port
from tests.stack import PROJECT, until

pytestmark = pytest.mark.slow  # each starts an installation of five processes

EMBEDDED = {
    "DATABASE_URL": "",
    "REDIS_URL": "",
    "CACHE_REDIS_URL": "",
    "CHANNEL_REDIS_URL": "",
    "CELERY_BROKER_URL": "",
}


class Up:
    """One `manage.py up` with its own data and port."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.data.mkdir(exist_ok=True)
        self.port = free_port()
        self.output = data / "up.out"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        return {**EMBEDDED, "DATA_DIR": str(self.data), "SECRET_KEY": "only-for-tests", "REDIS_KEY_PREFIX": ""}

    def command(self, port: int) -> list[str]:
        return [sys.executable, "manage.py", "up", "--port", str(port)]

    def start(self) -> Up:
        with self.output.open("wb") as out:
            self.process = processes.start(self.command(self.port), env=self.env, cwd=PROJECT, stdout=out)
        until(lambda: "Xinghuo is ready" in self.said() or self.ended(), seconds=90, what="up is ready")
        assert not self.ended(), self.said()
        return self

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def second(self, data: Path, port: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(port),
            env={**os.environ, **self.env, "DATA_DIR": str(data)},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=3) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def redis(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.data / "redis" / "redis.sock"), decode_responses=True)

    def children(self) -> dict[int, str]:
        """pid -> command line of every process that works on this data directory (but `up` itself)."""
        assert self.process is not None
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment = (path / "environ").read_bytes()
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            # Redis writes its title over its environment: it is known by the socket in its title
            mine = f"DATA_DIR={self.data}\0".encode() in environment + b"\0" or f"{self.data}/redis" in command
            if mine and int(path.name) != self.process.pid and state not in "ZX":
                found[int(path.name)] = command
        return found

    def child(self, word: str) -> int:
        return next((pid for pid, command in self.children().items() if word in command), 0)

    def stop(self) -> int:
        assert self.process is not None
        return processes.stop(self.process, patience=40)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    installation = Up(tmp_path / "d")
    yield installation
    if installation.process is not None:
        installation.stop()


def test_from_nothing_to_ready_and_nothing_left_behind(up: Up, tmp_path: Path) -> None:
    up.start()
    assert up.ready()
    said = up.said()
    assert f"http://127.0.0.1:{up.port}/admin/" in said
    assert "/api/v1/docs" in said
    assert "redis-cli -s" in said
    assert len(up.children()) == 7

    same_data = up.second(up.data, free_port())
    assert same_data.returncode == 2
    assert f"runs already (pid {up.process.pid if up.process else 0}" in same_data.stderr
    same_port = up.second(tmp_path / "other", up.port)
    assert same_port.returncode == 2
    assert f"port {up.port} is taken" in same_port.stderr
    assert f"make run PORT={up.port + 1}" in same_port.stderr
    for refused in (same_data, same_port):
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert up.ready()

    up.redis().set("kept", "1")
    assert up.stop() == 0
    assert up.children() == {}

    began = time.monotonic()
    up.start()
    assert time.monotonic() - began < 60  # seconds of work, on a machine that may be busy
    assert up.redis().get("kept") == "1"


def test_killed_children_come_back_and_redis_with_its_data(up: Up) -> None:
    up.start()
    up.redis().set("kept", "1")
    words = [
        "uvicorn",
        "--queues default",
        "--queues persist",
        "--queues publish",
        "--queues notify",
        "config beat",
        "redis-server",
    ]
    victims = {word: up.child(word) for word in words}
    assert all(victims.values()), victims
    for pid in victims.values():
        os.kill(pid, signal.SIGKILL)
    for word, pid in victims.items():
        until(lambda word=word, pid=pid: up.child(word) not in (0, pid), what=f"{word} is back")  # type: ignore[misc]
    until(up.ready, seconds=30)
    assert up.redis().get("kept") == "1"
    assert up.said().count("killed by SIGKILL") == len(words)


def test_children_die_with_an_up_that_is_killed_and_the_next_one_starts(up: Up) -> None:
    up.start()
    up.redis().set("kept", "1")
    assert up.process is not None
    up.process.kill()
    up.process.wait()
    up.start()  # at once: it waits for the Redis of the last one to have synced and gone
    assert up.redis().get("kept") == "1"
    assert len(up.children()) == 7


def test_a_redis_that_cannot_start_is_reported(up: Up) -> None:
    folder = up.data / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("this is no manifest\n")
    done = up.second(up.data, up.port)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "redis" in done.stderr
