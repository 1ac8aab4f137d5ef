"""Run in an installation of a test's own: scanners and publishers that are killed (SIGKILL) at random moments, again
and again, while a generated story is scanned and told. They are forked, so that a new one is at work at once."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from django.db import connections

from config.base import redis as base_redis
from memory.core.demo import generate
from memory.core.importer import import_tables
from risk.alerts.models import AlertOutbox

STORY: dict[str, Any] = {"customers": 110, "advisors": 4, "seed": 11, "days": 90, "end": date(2026, 11, 29)}
Work = Callable[[], bool]  # whether there may be more


def _forked(work: Work) -> int:
    """A process that does the work until there is none."""
    connections.close_all()
    base_redis.forget_clients()
    pid = os.fork()
    if pid:
        return pid
    try:
        while True:
            try:
                if not work():
                    os._exit(0)
            except Exception:
                logging.getLogger("killing").exception("goes on, as a worker's next tick does")
                time.sleep(0.05)
    finally:
        os._exit(1)


def _scanning() -> bool:
    from memory.core.models import CoreChange
    from risk.rules import services

    services.CLAIM_SECONDS = 1  # so long a dead one's customers wait
    services.CHUNK = 3
    return bool(services.scan(patience=0.2).left) or CoreChange.objects.exists()


def _publishing() -> bool:
    from risk.feed.services import publish

    publish()
    time.sleep(0.001)
    return True


def _ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] != 0


def _in_parts(tables: Mapping[str, Any], parts: int, chance: random.Random) -> list[Mapping[str, Any]]:
    """The story as a core sends it: two thirds of the trades at first, then the late ones and every correction, in
    any order."""
    trades = list(tables["trades.csv"])
    later = [row for row in trades if int(row["version"]) > 1 or chance.random() < 1 / 3]
    first = [row for row in trades if row not in later]
    chance.shuffle(later)
    return [{**tables, "trades.csv": first}, *({"trades.csv": later[n::parts]} for n in range(parts))]


def main(*, seed: int, kills: int, in_parts: bool = False) -> None:
    """Two scanners and two publishers; at random moments one of them is killed, `kills` times each kind, and another
    takes its place. Then all is finished in peace. Prints what was killed, as JSON.

    in_parts: late and corrected trades are imported between the kills.
    """
    chance = random.Random(seed)
    demo = generate(**STORY)
    first, *later = _in_parts(demo.tables, kills, chance) if in_parts else [demo.tables]
    import_tables(tenant="default", tables=first)
    kinds: dict[str, tuple[Work, list[int]]] = {"scanner": (_scanning, []), "publisher": (_publishing, [])}
    killed = dict.fromkeys(kinds, 0)
    in_time = 0
    for work, alive in kinds.values():
        alive += [_forked(work), _forked(work)]
    while min(killed.values()) < kills:
        if later:
            import_tables(tenant="default", tables=later.pop())
        for kind, (work, alive) in kinds.items():
            time.sleep(chance.uniform(0.0, 0.15))
            pid = alive.pop(chance.randrange(2))
            over = _ended(pid)  # a scanner that has nothing left
            if not over:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                in_time += 1
            killed[kind] += 1
            alive.append(_forked(work))
    for part in later:
        import_tables(tenant="default", tables=part)
    amid = AlertOutbox.objects.count()
    for pid in kinds["scanner"][1]:
        os.waitpid(pid, 0)
    for pid in kinds["publisher"][1]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    while _scanning():
        pass
    for _ in range(2):
        from risk.feed.services import publish

        publish()
    planted = [[v["rule"], v["evidence_key"], v["score"], v["subtypes"]] for v in demo.planted.violations]
    sys.stdout.write(json.dumps({"killed": killed, "in_time": in_time, "amid": amid, "planted": planted}) + "\n")
