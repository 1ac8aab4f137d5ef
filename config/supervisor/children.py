"""The processes of an installation and their command lines: `manage.py up` and the tests start the same ones."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

_QUIET_ROOT = "ignore:You're running the worker with superuser"  # containers run as root; it says so on each start

_NO_STATIC_ROOT = "ignore:No directory at:UserWarning"  # whitenoise serves from the apps until collectstatic ran
_REDIS_CHATTER = ("oO0OoO0", "Redis version=", "Configuration loaded", "Server initialized", "Memory overcommit")


@dataclass(frozen=True)
class Child:
    """One process.

    stop_after: seconds it gets to finish what it has in hand when it is asked to stop. stage: lower ones are
    stopped first. death_signal: what the kernel sends it when its parent dies. noise: lines with one of these
    words are not shown.
    """

    name: str
    command: tuple[str, ...]
    stop_after: float
    stage: int
    death_signal: int = signal.SIGKILL
    noise: tuple[str, ...] = ()


def web(*, host: str, port: int) -> Child:
    """HTTP and websockets in one ASGI process."""
    return Child(
        "web",
        (
            *(sys.executable, "-W", _NO_STATIC_ROOT, "-m", "uvicorn", "config.asgi:application"),
            *("--host", host, "--port", str(port)),
            *("--ws", "risk.feed.wire:FeedProtocol", "--lifespan", "off"),
            *("--no-access-log", "--log-level", "warning"),
            # uvicorn would believe X-Forwarded-For of anybody on this machine: TRUSTED_PROXIES decides.
            "--no-proxy-headers",
            # Websockets stay open for hours: after this many seconds they are closed with 1012, "come back".
            *("--timeout-graceful-shutdown", "3"),
        ),
        stop_after=8,
        stage=0,
    )


def worker(queue: str) -> Child:
    """One queue, one process. Pool `solo`: the work is one drain, one publish, one scan at a time by design, so a
    pool of processes or threads would only add memory, and one more layer between a kill and its effect."""
    name = {"default": "worker", "persist": "drain"}.get(queue, queue)
    return Child(
        name,
        (
            *(sys.executable, "-W", _QUIET_ROOT, "-m", "celery", "-q", "-A", "config", "worker"),
            *("--queues", queue, "--hostname", f"{name}@%h", "--pool", "solo"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"),
        ),
        stop_after=20,
        stage=2,
    )


def beat() -> Child:
    return Child(
        "beat",
        (*(sys.executable, "-m", "celery", "-q", "-A", "config", "beat"), *("--pidfile", "", "--loglevel", "WARNING")),
        stop_after=5,
        stage=1,
    )


def embedded_redis(command: list[str]) -> Child:
    """Last to stop: the workers write to it to the end. SIGTERM makes it sync its AOF and leave, also when it is
    the kernel that sends it."""
    return Child("redis", tuple(command), stop_after=20, stage=3, death_signal=signal.SIGTERM, noise=_REDIS_CHATTER)


def all_of(*, host: str, port: int) -> list[Child]:
    """Every Python process of an installation."""
    workers = [worker(queue) for queue in ("default", "publish", "persist", "notify")]
    return [web(host=host, port=port), beat(), *workers]
