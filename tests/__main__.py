"""`make test`: the whole suite on MariaDB and on SQLite, with servers of its own. Arguments go to pytest.

1. SQLite: everything but what is marked `mariadb`, `slow` or `browser`.
2. MariaDB: everything. Its closing lines are the last thing printed, and tell when the first run failed.

Exit code: 0 when both passed; else the first failure's. 5 (nothing selected) in one of them is no failure.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from config.supervisor import process as processes
from tests.services import ServiceMissing, end_on_sigterm, services

NOTHING_SELECTED = 5


def _pytest(arguments: Sequence[str], env: dict[str, str]) -> int:
    """Runs pytest in the terminal's own process group, so that Ctrl-C reaches it; waits for its clean-up."""
    process = processes.start([sys.executable, "-m", "pytest", *arguments], env=env, own_session=False)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # a second one from the terminal does no harm
        process.wait()
        raise


def main(arguments: Sequence[str]) -> int:
    end_on_sigterm()
    unset = dict.fromkeys(("CACHE_REDIS_URL", "CHANNEL_REDIS_URL", "CELERY_BROKER_URL", "CORE_DATABASE_URL"), "")
    try:
        print("== SQLite and Redis", flush=True)
        with services(with_mariadb=False) as env:
            on_sqlite = _pytest(
                ["-m", "not mariadb and not slow and not browser", *arguments], {**unset, **env, "DATABASE_URL": ""}
            )
        print("== MariaDB and Redis", flush=True)
        with services() as env:
            note = "" if on_sqlite in (0, NOTHING_SELECTED) else "The run on SQLite FAILED: see above."
            on_mariadb = _pytest(arguments, {**unset, **env, "XINGHUO_TEST_NOTE": note})
    except ServiceMissing as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if NOTHING_SELECTED in (on_sqlite, on_mariadb):
        return on_sqlite if on_mariadb == NOTHING_SELECTED else on_mariadb
    return on_sqlite or on_mariadb


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
