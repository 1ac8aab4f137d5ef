"""Admission while Redis is away: what this host and the database know.

Block and pause: closed, from the database's copy (policy.py). Rate, hourly, address and running calls: this host
admits the limit, counted by all of its processes together (host.py). Quota and budget: from the ledger in MySQL, less
the calls of this host that are not in it yet; closed past it. With the database away too: closed. A run needs a fencing
number that all agree on: closed.

Several hosts (ADMISSION_HOSTS, one each DATA_DIR) admit a share each, which together are the limit, to the last call: a
limit of 3 on 2 hosts is 2 on the one and 1 on the other. Of a quota or budget it is a share of what the ledger had left
when the host first asked in this outage, and no more.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import settings

from guard.access.services import Caller
from guard.admission import budget, host, periods
from guard.admission.plans import UNASKED, Plan
from guard.admission.policy import OFF
from guard.admission.tuning import tuning

LEDGER_SECONDS = 1.0  # how old what the ledger said may be
OUTAGE_OVER_SECONDS = 60.0  # a share that nobody asked for so long is one of an outage before
_DAY = 86400.0
_MOST = 20_000
_PRUNED_EACH = 64


@dataclass(frozen=True, slots=True)
class Local:
    """refused_by: '' when admitted. lefts: as of admit.lua. wait: seconds. waits: ms until there is more of rate and
    hourly."""

    refused_by: str
    limit: int
    lefts: tuple[int, ...]
    wait: float = 0.0
    waits: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _State:
    """ledger: when it was asked, and what it said."""

    ledger: dict[tuple[str, ...], tuple[float, int]] = field(default_factory=dict)
    pruned: int = 0


_state = _State()
_remembering = threading.Lock()


def forget_local() -> None:
    """Also what the other processes of this host have counted under this prefix: for tests."""
    global _state
    _state = _State()
    prefix = f"{tuning().prefix}|%"
    with host.calls() as calls:
        for table in ("call", "moment", "given"):
            calls.execute(f"DELETE FROM {table} WHERE place LIKE ?", [prefix])  # noqa: S608 - names of our own


def share(limit: int) -> int:
    """What this host may admit of `limit` by itself. Those of all hosts add up to it."""
    hosts, number = settings.ADMISSION_HOSTS, settings.ADMISSION_HOST_NUMBER
    return int(limit // hosts + (number < limit % hosts))


def admit_locally(
    caller: Caller, plan: Plan, token: str, action: str, estimate: int, lease: float, life: float, *, asked: bool
) -> Local:
    """Decides and, when it admits, counts. lease: seconds of the slots, 0 for none; life: of the reservation.

    asked: Redis may have admitted it too, see Verdict.
    Cost: a transaction on a file, up to 2 queries, each at most once a second. Errors: the database's;
    RedisUnavailable, where the file cannot be used.
    """
    ms = periods.clock.now_ms()
    day = periods.day_at(plan.days, ms)
    spent, since_spent = _spent(caller.tenant, day[:7]) if plan.limits["budget"] >= 0 else (0, 0.0)
    calls, since_calls = _settled(caller.tenant, caller.actor_id, day) if plan.limits["quota"] >= 0 else (0, 0.0)
    with host.calls() as connection:
        counted = _Counted(connection, caller, plan, action, day, ms)
        found = counted.decide(spent, since_spent, calls, since_calls, estimate, lease)
        if not found.refused_by:
            counted.take(token, estimate, lease, life, asked)
        return found


class _Counted:
    """What this host has admitted without Redis, within one transaction."""

    def __init__(
        self, connection: sqlite3.Connection, caller: Caller, plan: Plan, action: str, day: str, ms: int
    ) -> None:
        self.ask, self.plan, self.day, self.ms = connection.execute, plan, day, ms
        self.limits, self.now, self.actor = plan.limits, time.monotonic(), caller.actor_id
        self.place = f"{plan.prefix}|{caller.tenant}"
        self.windows = (
            ("ip", f"{self.place}|ip|{plan.ip}", 60.0),
            ("rate", f"{self.place}|rate|{self.actor}|{caller.agent}", settings.ADMISSION_RATE_WINDOW_MS / 1000),
            ("hourly", f"{self.place}|hourly|{self.actor}|{action}", 3600.0),
        )
        self.shares = {"quota": f"{self.place}|day|{self.actor}|{day}", "budget": f"{self.place}|month|{day[:7]}"}
        self._prune()

    def decide(
        self, spent: int, since_spent: float, calls: int, since_calls: float, estimate: int, lease: float
    ) -> Local:
        lefts: dict[str, int] = {}
        waits = {"rate": 0.0, "hourly": 0.0, "ip": 0.0}
        for name, place, span in self.windows:
            limit = lefts[name] = self.limits[name]
            if limit < 0:
                continue
            used, first = self.ask(
                "SELECT count(*), min(at) FROM moment WHERE place = ? AND at > ?", [place, self.now - span]
            ).fetchone()
            waits[name] = span if first is None else first + span - self.now
            lefts[name] = share(limit) - used - 1
            if lefts[name] < 0:
                return Local(name, limit, (), waits[name])
        for name, settled, since, more in (("quota", calls, since_calls, 1), ("budget", spent, since_spent, estimate)):
            limit = lefts[name] = self.limits[name]
            if limit < 0:
                continue
            room = limit - settled - self._not_in_the_ledger(name, since)
            lefts[name] = min(self._remains(name, room), room) - more
            if lefts[name] < 0 or room <= 0:
                end = self.plan.end_of_day(self.ms) if name == "quota" else self.plan.end_of_month(self.ms)
                return Local(name, limit, (), (end - self.ms) / 1000)
        for name, actor in (("tenant_running", None), ("user_running", self.actor)):
            limit = self.limits[name]
            lefts[name] = UNASKED if not lease else OFF
            if not lease or limit < 0:
                continue
            used, first = self.ask(
                "SELECT count(*), min(slot_ends) FROM call"
                " WHERE place = ?1 AND (?2 IS NULL OR actor = ?2) AND slot_ends > ?3",
                [self.place, actor, self.now],
            ).fetchone()
            lefts[name] = share(limit) - used - 1
            if lefts[name] < 0:
                return Local(name, limit, (), 1.0 if first is None else first - self.now)
        order = ("ip", "rate", "hourly", "quota", "budget", "tenant_running", "user_running")
        ends = (int(waits["rate"] * 1000), int(waits["hourly"] * 1000))
        return Local("", 0, tuple(lefts[name] for name in order), waits=ends)

    def _not_in_the_ledger(self, name: str, since: float) -> int:
        """Of this host's calls, those that were not settled when the ledger was asked. A settlement is committed
        before it is noted here, so none is in neither."""
        open_still = "(settled IS NULL OR settled >= ?)"
        if name == "quota":
            found = self.ask(
                f"SELECT sum(counted) FROM call WHERE place = ? AND actor = ? AND day = ? AND {open_still}",  # noqa: S608
                [self.place, self.actor, self.day, since],
            )
        else:
            found = self.ask(
                f"SELECT sum(estimate) FROM call WHERE place = ? AND month = ? AND {open_still}"  # noqa: S608
                " AND (settled IS NOT NULL OR money_ends > ?)",
                [self.place, self.day[:7], since, self.now],
            )
        return int(found.fetchone()[0] or 0)

    def _remains(self, name: str, room: int) -> int:
        """Of several hosts each gives out a share of what there was when it first asked in this outage."""
        if settings.ADMISSION_HOSTS == 1:
            return room
        place = self.shares[name]
        found = self.ask("SELECT remains, used FROM given WHERE place = ?", [place]).fetchone()
        remains = share(max(0, room)) if found is None or found[1] < self.now - OUTAGE_OVER_SECONDS else found[0]
        self.ask("INSERT OR REPLACE INTO given VALUES (?, ?, ?)", [place, remains, self.now])
        return int(remains)

    def take(self, token: str, estimate: int, lease: float, life: float, asked: bool) -> None:
        counted = self.limits["quota"] != UNASKED
        for name, place, _span in self.windows:
            if self.limits[name] >= 0:
                self.ask("INSERT INTO moment VALUES (?, ?)", [place, self.now])
        if settings.ADMISSION_HOSTS > 1:
            for name, more in (("quota", 1), ("budget", estimate)):
                if self.limits[name] >= 0:
                    self.ask("UPDATE given SET remains = remains - ? WHERE place = ?", [more, self.shares[name]])
        if not (counted or estimate or lease or asked):
            return
        slot_ends, money_ends = self.now + lease, self.now + max(life, lease)
        self.ask(
            "INSERT INTO call VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            [
                token, self.place, self.actor, self.day[:7], self.day, estimate, int(counted), int(asked), self.now,
                slot_ends if lease else 0.0, money_ends,
            ],
        )  # fmt: skip
        host.expect_call(max(money_ends, self.now + _DAY if counted else 0.0))

    def _prune(self) -> None:
        _state.pruned += 1
        if _state.pruned % _PRUNED_EACH:
            return
        self.ask("DELETE FROM moment WHERE at < ?", [self.now - 3600])
        self.ask("DELETE FROM given WHERE used < ?", [self.now - _DAY])
        over = "slot_ends < ?1 AND (settled < ?1 - 10 OR (counted = 0 AND money_ends < ?1) OR began < ?1 - 172800)"
        self.ask(f"DELETE FROM call WHERE {over}", [self.now])  # noqa: S608


@dataclass(frozen=True, slots=True)
class Ended:
    """here: this host admitted it without Redis. asked: Redis may have admitted it too."""

    here: bool
    asked: bool


_NOT_HERE = Ended(False, True)


def end_locally(token: str, actual: int | None = None, *, unused: bool = False, keep: bool = False) -> Ended:
    """actual: what it cost, when it was settled. unused: no work began, the day's call is given back. keep: the slots
    stay. Cost: a look at memory unless this host has such calls. Errors: RedisUnavailable, see host.calls."""
    if not host.any_call():
        return _NOT_HERE
    now = time.monotonic()
    with host.calls() as connection:
        ask = connection.execute
        found = ask(
            "SELECT place, actor, month, day, estimate, counted, asked, settled FROM call WHERE token = ?", [token]
        ).fetchone()
        if found is None:
            return _NOT_HERE
        place, actor, month, day, estimate, counted, asked, settled = found
        if actual is not None:
            ask("UPDATE call SET settled = ?, estimate = max(estimate, ?) WHERE token = ?", [now, actual, token])
        elif unused and settled is None:
            ask("DELETE FROM call WHERE token = ?", [token])
        elif settled is None:
            ask("UPDATE call SET estimate = 0 WHERE token = ?", [token])
        if not keep:
            ask("UPDATE call SET slot_ends = 0 WHERE token = ?", [token])
        if settings.ADMISSION_HOSTS > 1 and settled is None:
            back = [(f"{place}|month|{month}", estimate - (actual or 0))]
            if unused and counted and actual is None:
                back.append((f"{place}|day|{actor}|{day}", 1))
            for name, more in back:
                ask("UPDATE given SET remains = remains + ? WHERE place = ?", [more, name])
        return Ended(True, bool(asked))


def renew_locally(token: str, lease: float, life: float) -> bool:
    """False where its time is over, or it is none of this host's. Errors: as `end_locally`."""
    if not host.any_call():
        return False
    now = time.monotonic()
    with host.calls() as connection:
        done = connection.execute(
            "UPDATE call SET slot_ends = ?, money_ends = ? WHERE token = ? AND slot_ends > ?",
            [now + lease, now + max(life, lease), token, now],
        )
        if done.rowcount:
            host.expect_call(now + max(life, lease))
        return bool(done.rowcount)


def _spent(tenant: str, month: str) -> tuple[int, float]:
    return _remembered(("month", tenant, month), lambda: budget.known(tenant, month).spent)


def _settled(tenant: str, actor_id: str, day: str) -> tuple[int, float]:
    return _remembered(("day", tenant, actor_id, day), lambda: budget.settled_calls(tenant, actor_id, day))


def _remembered(place: tuple[str, ...], ask: Callable[[], int]) -> tuple[int, float]:
    """What the ledger said, and the moment from before it was asked (monotonic seconds)."""
    seen, began = _state.ledger.get(place), time.monotonic()
    if seen is not None and began - seen[0] < LEDGER_SECONDS:
        return seen[1], seen[0]
    value = ask()
    with _remembering:
        if len(_state.ledger) > _MOST:
            _state.ledger.clear()
        _state.ledger[place] = (began, value)
    return value, began


def forget_ledger(tenant: str, month: str, actor_id: str, day: str) -> None:
    """Something was settled: the next call asks again."""
    _state.ledger.pop(("month", tenant, month), None)
    _state.ledger.pop(("day", tenant, actor_id, day), None)
