"""`make test`: the whole suite on MariaDB and on SQLite, at once, with servers of its own. Arguments go to pytest.

- MariaDB: everything, in the foreground, on as many workers as there are cores (pytest-xdist, whole files at a time).
- SQLite beside it: what uses a database and is not marked `mariadb`, `slow` or `browser`. What it said is printed when
  both have ended: all of it where it failed, its last lines where it passed. A test that uses no database gives the
  same answer on both, so it runs once.

Each worker has a database of its own, each test a Redis prefix, each run a Redis. Tests wait as often as they work, so
one worker more than there are cores keeps the cores busy. `ARGS="-n 0"` runs in one process, as `--pdb` needs it.
Exit code: 0 when both passed; else the first failure's. 5 (nothing selected) in one of them is no failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from config.supervisor import process as processes
from tests.services import ServiceMissing, end_on_sigterm, services

NOTHING_SELECTED = 5
UNSET = dict.fromkeys(
    ("CACHE_REDIS_URL", "CHANNEL_REDIS_URL", "CELERY_BROKER_URL", "CORE_DATABASE_URL", "DATABASE_URL"), ""
)
CLOSING_LINES = 3
BESIDE = ("-m", "not mariadb and not slow and not browser", "--uses-database")


def _workers() -> tuple[int, int]:
    """How many for MariaDB and for SQLite: two and one on two cores. SQLite's half of the work ends first."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return max(2, cores), max(1, cores // 2)


def _start(
    arguments: Sequence[str], env: dict[str, str], *, workers: int, said: IO[Any] | None = None
) -> subprocess.Popen[bytes]:
    """pytest in the terminal's own process group, so that Ctrl-C reaches it too."""
    spread = ("-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder")
    return processes.start(
        [sys.executable, "-m", "pytest", *spread, *arguments], env={**UNSET, **env}, stdout=said, own_session=False
    )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; on Ctrl-C it is let clean up first."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # a second one from the terminal does no harm
        process.wait()
        raise


def _verdict(code: int) -> str:
    return {0: "passed", NOTHING_SELECTED: "nothing selected"}.get(code, f"FAILED ({code})")


def _tell(said: IO[Any], code: int) -> None:
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    shown = lines if code not in (0, NOTHING_SELECTED) else lines[-CLOSING_LINES:]
    print("\n".join(("== SQLite and Redis", *shown)), flush=True)


def main(arguments: Sequence[str]) -> int:
    end_on_sigterm()
    try:
        with services(with_mariadb=False) as lite, services() as maria, tempfile.TemporaryFile() as said:
            print("== MariaDB and Redis (SQLite beside it)", flush=True)
            many, few = _workers()
            beside = _start([*BESIDE, *arguments], lite, workers=few, said=said)
            try:
                on_mariadb = _wait(_start(arguments, maria, workers=many))
                on_sqlite = _wait(beside)
            finally:
                if beside.poll() is None:
                    beside.send_signal(signal.SIGINT)
                    beside.wait()
            _tell(said, on_sqlite)
            print(f"== MariaDB: {_verdict(on_mariadb)} · SQLite: {_verdict(on_sqlite)}", flush=True)
    except ServiceMissing as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if NOTHING_SELECTED in (on_sqlite, on_mariadb):
        return on_sqlite if on_mariadb == NOTHING_SELECTED else on_mariadb
    return on_mariadb or on_sqlite


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
