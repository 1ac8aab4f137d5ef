"""`make bench`: every benchmark beside its baseline and its peers in the same run, as ratios (see docs/benchmarks.md).

Runs on a MariaDB and a Redis of its own (AOF, fsync every second, as in production). On a busy machine absolute rates
mean little; the ratios are what to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """One comparison. target: the least ratio that is good enough, 0 where there is none."""

    benchmark: str
    measured: float
    baseline: str
    base: float
    target: float = 0.0
    note: str = ""
    lower_is_better: bool = False

    @property
    def ratio(self) -> float:
        return self.measured / self.base if self.base else 0.0

    @property
    def verdict(self) -> str:
        if not self.target:
            return ""
        return "met" if (self.ratio <= self.target if self.lower_is_better else self.ratio >= self.target) else "MISSED"


def turns(seconds: float, found: list[Any]) -> Iterator[Row]:
    from memory.sessions.drain import drain
    from tests.bench.rates import interleaved
    from tests.bench.turn import turn_slices

    slices = {**turn_slices(), **{peer.name: peer.turn for peer in found}}
    rates = interleaved(slices, seconds, between=drain)
    ping = rates["PING"]
    yield Row("EVALSHA return 1, without the client's layers", rates["EVALSHA return 1"], "PING", ping)
    yield Row("turn: append 2 answering the last 20 (1 call)", rates["one call"], "PING", ping, 0.40)
    yield Row("turn: append 2, read 20 (2 calls)", rates["two calls"], "PING", ping)
    for peer in found:
        yield Row(f"turn of {peer.name}", rates[peer.name], "PING", ping)
    for name, target in (("RedisSession", 4.0), ("RedisChatMessageHistory", 3.5), ("SQLAlchemySession", 0.0)):
        if name in rates:
            yield Row("turn (1 call)", rates["one call"], name, rates[name], target)


def writers(found: list[Any]) -> Iterator[Row]:
    from tests.bench.turn import writers_rate

    own = [writers_rate(16, 50) for _ in range(3)]
    rate = sorted(rate for rate, _ in own)[1]
    note = f"lost: {sum(lost for _, lost in own)} of {3 * 800}"
    yield Row("16 first writers on one session, appends", rate, "2,000/s", 2000.0, 1.0, note)
    for peer in found:
        if peer.writers is None:
            continue
        theirs, lost = peer.writers(16, 50)
        target = 10.0 if peer.name == "RedisSession" else 0.0
        yield Row("16 first writers on one session", rate, peer.name, theirs, target, f"it lost: {lost} of 800")


def doors(seconds: float) -> Iterator[Row]:
    from memory.sessions.drain import drain
    from tests.bench.doors import door_slices
    from tests.bench.rates import interleaved

    rates = interleaved(door_slices(), seconds, between=drain)
    yield Row("append of a turn by Sessions", rates["Sessions"], "the service itself", rates["service"])
    for tasks in ("1 task", "50 tasks"):
        ours, least = rates[f"AsyncSessions, {tasks}"], rates[f"redis.asyncio, {tasks}"]
        yield Row(f"append of a turn by AsyncSessions, {tasks}", ours, "redis.asyncio, bare", least)


def admissions(seconds: float) -> Iterator[Row]:
    from tests.bench.admission import admission_slices, composed_slice, forget
    from tests.bench.rates import interleaved

    slices, missing = admission_slices(), ""
    try:
        slices["limits x 3 and Lock"] = composed_slice()
    except ImportError as error:
        missing = str(error)
    forget()
    rates = interleaved(slices, seconds, between=forget)
    ours = rates.pop("admission")
    targets = {"nothing, by redis-py": 0.6, "limits x 3 and Lock": 3.0}
    for name, rate in rates.items():
        yield Row("admission, all of it (1 call)", ours, name, rate, targets.get(name, 0.0))
    if missing:
        yield Row("limits is not there", 0.0, "", 0.0, note=missing)


def profiles(seconds: float) -> Iterator[Row]:
    from tests.bench.profile import profile_slices
    from tests.bench.rates import interleaved

    rates = interleaved(profile_slices(), seconds)
    yield Row("cached profile read, may it be read included", rates["read"], "GET, json.loads", rates["GET"], 0.8)
    yield Row("the same, the agent's key checked too", rates["by key"], "GET, json.loads", rates["GET"], 0.8)


def snapshots(seconds: float) -> Iterator[Row]:
    from tests.bench.rates import interleaved
    from tests.bench.snapshot import snapshot_slices

    rates = interleaved(snapshot_slices(), seconds)
    yield Row("cached snapshot, 500 positions, access included", rates["read"], "GET, json.loads", rates["GET"])
    yield Row("the same by loads from the core (5 queries)", rates["read"], "loads", rates["load"])
    yield Row("kept answer, looked up", rates["answer"], "GET, json.loads", rates["GET"])


def draining(seconds: float, long: bool) -> Iterator[Row]:
    from tests.bench.drain import drain_rates, lag

    rates = drain_rates()
    yield Row("drain, rows", rates["drain"], "raw executemany", rates["raw"], 0.8)
    if long:
        seen = lag(rates["drain"] / 2, seconds)
        note = (
            f"p50 {seen['p50']:.2f} s, max {seen['max']:.2f} s at {seen['rate']:.0f} of {rates['drain'] / 2:.0f} "
            f"messages/s for {seconds:.0f} s, lost: {seen['lost']:.0f}"
        )
        yield Row("lag to the database at half that rate, p99 in s", seen["p99"], "2 s", 2.0, 1.0, note, True)


def publishing(seconds: float) -> Iterator[Row]:
    from tests.bench.publish import ALERTS_A_SECOND, delays

    seen = delays(seconds)
    note = (
        f"p50 {seen['p50'] * 1000:.0f} ms, max {seen['max'] * 1000:.0f} ms at {seen['rate']:.0f} alerts/s for "
        f"{seconds:.0f} s, lost: {seen['lost']:.0f}, twice: {seen['twice']:.0f}"
    )
    name = f"commit to publish at {ALERTS_A_SECOND:.0f} alerts/s, p99 in s"
    yield Row(name, seen["p99"], "1 s", 1.0, 1.0, note, True)


def feeding(seconds: float) -> Iterator[Row]:
    from tests.bench.feed import ALERTS_A_SECOND, SOCKETS, feed_figures, layer_rate

    seen = feed_figures(seconds)
    plain, plain_kib = layer_rate()
    note = (
        f"p50 {seen['p50'] * 1000:.0f} ms, max {seen['max'] * 1000:.0f} ms at {seen['rate']:.0f} alerts/s for "
        f"{seconds:.0f} s, lost: {seen['lost']:.0f}, closed: {seen['closed']:.0f}"
    )
    name = f"commit to the last of {SOCKETS} sockets, p99 in s"
    yield Row(name, seen["p99"], "1 s", 1.0, 1.0, note, True)
    note = f"{ALERTS_A_SECOND:.0f} alerts/s to all are {ALERTS_A_SECOND * SOCKETS:.0f}"
    yield Row("frames/s, alerts published one by one", seen["one by one"], "group_send", plain, 8.0, note)
    yield Row("frames/s, 100 alerts at once", seen["burst"], "group_send", plain, 0.0, f"{seen['cpu']:.1f} us a frame")
    yield Row("memory of an idle socket, KiB", seen["kib"], "group_send", plain_kib, lower_is_better=True)


def scans(long: bool) -> Iterator[Row]:
    from tests.bench.scans import history_costs, make_year, scan_rates

    trades = make_year("bench", 500)
    rates = scan_rates("bench")
    note = ", ".join(f"{name[6:]} {share:.0%}" for name, share in rates.items() if name.startswith("share "))
    name = f"scan of {trades} trades, all rules, nothing new"
    yield Row(name, rates["again"], "values_list", rates["trades"], 0.15, note)
    yield Row("the same, beside all rows that it reads", rates["again"], "values_list", rates["all rows"])
    yield Row("the first scan, every hit is new", rates["first"], "values_list", rates["trades"])
    few, many = (100_000, 1_000_000) if long else (10_000, 100_000)
    costs = history_costs(few, many)
    note = f"ms a trade, with {many} trades of history and with {few}"
    yield Row("one trade evaluated", costs[many], f"{few} trades", costs[few], 1.2, note, True)


def queues(long: bool) -> Iterator[Row]:
    from tests.bench.queue import VIEWS, queue_times

    views, bare, empty = queue_times(1_000_000 if long else 50_000)
    note = f"ms; {bare:.1f} of the SELECT and {empty:.1f} of an empty page"
    for name in VIEWS:
        yield Row(f"queue, {name}", views[name], "keyset SELECT, empty page", bare + empty, 5.0, note, True)


def serving(seconds: float, port: int) -> Iterator[Row]:
    from tests.bench.http import http_rates, wait_until_serving

    wait_until_serving(port)
    rates = http_rates(port, seconds)
    yield Row("HTTP append of a turn", rates["append"], "bare endpoint", rates["bare"], 0.5)


@contextmanager
def installation() -> Iterator[tuple[dict[str, str], str]]:
    """Servers and a migrated database; gives the environment and the URL of a database for the peers."""
    from tests.services import services

    with services() as env:
        import MySQLdb
        import redis

        redis.Redis.from_url(env["REDIS_URL"]).config_set("appendfsync", "everysec")  # as in production
        port = int(env["DATABASE_URL"].rsplit(":", 1)[1].split("/")[0])
        database = MySQLdb.connect(host="127.0.0.1", port=port, user="root")
        # As in production; the tests' server does not wait for its disk.
        database.cursor().execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        database.cursor().execute("CREATE DATABASE peers CHARACTER SET utf8mb4")
        database.close()
        own = {
            **env,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "SECRET_KEY": "only-for-the-benchmark",
            "LOG_LEVEL": "WARNING",
            **dict.fromkeys(("CORE_DATABASE_URL", "CACHE_REDIS_URL", "CHANNEL_REDIS_URL"), ""),
            **dict.fromkeys(("CELERY_BROKER_URL", "REDIS_KEY_PREFIX"), ""),
        }
        os.environ.update(own)
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield own, f"mysql+aiomysql://root@127.0.0.1:{port}/peers?charset=utf8mb4"


PARTS = (
    "turns", "writers", "doors", "admissions", "profiles", "snapshots", "draining", "publish", "feed", "scans", "queue",
    "http",
)  # fmt: skip


def measure(seconds: float, long: bool, lag_seconds: float, only: Set[str] = frozenset(PARTS)) -> list[Row]:
    rows: list[Row] = []
    with installation() as (env, peers_url):
        if not {"turns", "writers"}.isdisjoint(only):
            rows += _beside_peers(seconds, env, peers_url, only)
        for name, part in (
            ("doors", doors),
            ("admissions", admissions),
            ("profiles", profiles),
            ("snapshots", snapshots),
        ):
            if name in only:
                rows += part(seconds)
        if "draining" in only:
            rows += draining(lag_seconds, long)
        if "publish" in only:
            rows += publishing(max(10.0, seconds * 5))
        if "feed" in only:
            rows += feeding(max(10.0, seconds * 5))
        if "scans" in only:
            rows += scans(long)
        if "queue" in only:
            rows += queues(long)
        if "http" in only:
            rows += _over_http(seconds, env)
    return rows


def _beside_peers(seconds: float, env: dict[str, str], url: str, only: Set[str]) -> Iterator[Row]:
    from tests.bench.peers import peers

    found, missing = peers(env["REDIS_URL"], url)
    if "turns" in only:
        yield from turns(seconds, found)
    if "writers" in only:
        yield from writers(found)
    for peer in found:
        peer.close()
    yield from (Row(f"{name} is not there", 0.0, "", 0.0, note=why) for name, why in missing.items())


def _over_http(seconds: float, env: dict[str, str]) -> Iterator[Row]:
    from config.supervisor import process as processes
    from config.supervisor.redis_server import free_port

    port = free_port()
    server = processes.start([sys.executable, "-m", "tests.bench.serve", str(port)], env=env, cwd=PROJECT)
    try:
        yield from serving(seconds, port)
    finally:
        processes.stop(server)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each rate (default 4)")
    parser.add_argument("--long", action="store_true", help="also the database's lag under load")
    parser.add_argument("--lag-seconds", type=float, default=60.0, help="how long the load of --long is (default 60)")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone (may be given again)")
    options = parser.parse_args()
    rows = measure(options.seconds, options.long, options.lag_seconds, frozenset(options.only or PARTS))
    if options.json:
        print(json.dumps([{**asdict(row), "ratio": round(row.ratio, 3), "verdict": row.verdict} for row in rows]))
        return 0
    print(f"{'benchmark':<48}{'measured':>10}  {'beside':<24}{'measured':>10}{'ratio':>9}{'target':>8}  ")
    for row in rows:
        target = f"{'<=' if row.lower_is_better else '>='} {row.target:g}" if row.target else ""
        print(
            f"{row.benchmark:<48}{row.measured:>10.1f}  {row.baseline:<24}{row.base:>10.1f}"
            f"{row.ratio:>9.3f}{target:>8}  {row.verdict:<7}{row.note}".rstrip()
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
