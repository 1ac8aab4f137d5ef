"""`make bench`: every benchmark beside its baseline in the same run, printed as ratios (`ARGS=--json` for programs).

Runs on servers of its own. On a busy machine absolute rates mean little; the ratios are what to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def measure(seconds: float, port: int) -> list[dict[str, Any]]:
    from tests.bench.http import http_rates, wait_until_serving
    from tests.bench.turn import turn_rates, writers_rate

    turn = turn_rates(seconds)
    writers = max(writers_rate(16, 100) for _ in range(3))
    wait_until_serving(port)
    http = http_rates(port, seconds)

    def row(name: str, rate: float, baseline: str, base: float) -> dict[str, Any]:
        return {
            "benchmark": name,
            "per_second": round(rate, 1),
            "baseline": baseline,
            "baseline_per_second": round(base, 1),
            "ratio": round(rate / base, 3),
        }

    return [
        row("turn: append 2, read 20 (2 round trips)", turn["turn"], "PING", turn["ping"]),
        row("turn: append 2 answering the last 20 (1 round trip)", turn["turn_one_call"], "PING", turn["ping"]),
        row("16 writers on one session, appends", writers, "PING", turn["ping"]),
        row("HTTP append of a turn", http["append"], "bare endpoint", http["bare"]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each measurement (default 6)")
    options = parser.parse_args()

    from config.supervisor import process as processes
    from config.supervisor.redis_server import free_port
    from tests.services import RedisServer, temporary_directory

    with temporary_directory("xinghuo-bench-") as directory:
        redis = RedisServer(Path(directory) / "redis").start()
        redis.client().config_set("appendfsync", "everysec")  # as in production; tests run with `always`
        own = {
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATA_DIR": str(Path(directory) / "var"),
            "REDIS_URL": redis.url,
            "SECRET_KEY": "only-for-the-benchmark",
            "LOG_LEVEL": "WARNING",
            **dict.fromkeys(("DATABASE_URL", "CORE_DATABASE_URL", "CACHE_REDIS_URL", "CHANNEL_REDIS_URL"), ""),
            **dict.fromkeys(("CELERY_BROKER_URL", "REDIS_KEY_PREFIX"), ""),
        }
        os.environ.update(own)
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        port = free_port()
        server = processes.start(
            [sys.executable, "-m", "tests.bench.serve", str(port)], env=own, cwd=Path(__file__).resolve().parents[2]
        )
        try:
            rows = measure(options.seconds, port)
        finally:
            processes.stop(server)
            redis.stop()
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'benchmark':<54}{'per second':>12}  {'baseline':<15}{'per second':>12}{'ratio':>8}")
        for row in rows:
            print(
                f"{row['benchmark']:<54}{row['per_second']:>12.1f}  {row['baseline']:<15}"
                f"{row['baseline_per_second']:>12.1f}{row['ratio']:>8.3f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
