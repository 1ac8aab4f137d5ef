"""Is this installation fit to serve? The same checks for `/health/ready`, `/metrics` and `manage.py doctor`.

Each has a short time-out, says what is wrong in a sentence and what to do, and never raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections

from config.base.clock import now, rfc3339
from config.base.redis import RedisUnavailable, is_away
from guard.audit import taking, triggers
from guard.audit.looking import look_at_chain
from guard.audit.losses import read_losses
from guard.audit.sealing import backlog
from guard.locks.keys import LOCK
from memory.core.watch import round_age
from memory.sessions.keys import PENDING
from risk.alerts.damage import damaged_rows
from risk.alerts.models import AlertOutbox
from risk.feed.selectors import set_aside
from risk.notify.selectors import standing
from risk.rules.ruling import damaged_versions

TIMEOUT = 2.0  # seconds for one check
LEAST_REDIS = (6, 2)


@dataclass(frozen=True)
class Result:
    """ok; detail: a sentence; advice: what to do when not ok; value: seconds or a count where the check measures.

    warning: fit to serve, and somebody has to look. gauges: what else was measured, by the metric's name.
    """

    name: str
    ok: bool
    detail: str
    advice: str = ""
    value: float | None = None
    warning: bool = False
    gauges: dict[str, float] = field(default_factory=dict)


# --- time-outs --------------------------------------------------------------------------------------------------

_hanging: dict[str, float] = {}  # name of a check whose thread has not come back -> when it began
_hanging_lock = threading.Lock()


def _bounded(name: str, check: Callable[[], Result]) -> Result:
    """`check` in a thread of its own, given up after TIMEOUT. While one hangs no second is started: a database that
    answers nothing costs one thread, not one a probe."""
    with _hanging_lock:
        since = _hanging.get(name)
        if since is not None:
            return Result(name, False, f"no answer for {time.monotonic() - since:.0f} s", "is the server overloaded?")
        _hanging[name] = time.monotonic()
    found: list[Result] = []

    def run() -> None:
        try:
            found.append(check())
        except Exception as error:  # noqa: BLE001 - a check that fails is a finding, and its text may hold a password
            found.append(Result(name, False, f"the check failed ({type(error).__name__})", "see the log"))
        finally:
            connections.close_all()
            with _hanging_lock:
                _hanging.pop(name, None)

    thread = threading.Thread(target=run, name=f"check-{name}", daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    if found:
        return found[0]
    return Result(name, False, f"no answer within {TIMEOUT:.0f} s", "is the server reachable and not overloaded?")


# --- checks -----------------------------------------------------------------------------------------------------


def database() -> Result:
    def check() -> Result:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchone()
        except DatabaseError as error:
            return Result(
                "database",
                False,
                f"the database does not answer ({_number(error)})",
                "check the server and DATABASE_URL",
            )
        return Result("database", True, f"{_database_name()} answers")

    return _bounded("database", check)


def audit_triggers() -> Result:
    def check() -> Result:
        try:
            gone = triggers.missing(connection)
        except DatabaseError as error:
            return Result("audit_triggers", False, f"not known while the database is away ({_number(error)})")
        if gone:
            return Result(
                "audit_triggers",
                False,
                f"{' and '.join(sorted({name.partition('_refuse')[0] for name in gone}))} can be changed: "
                f"{', '.join(gone)} missing",
                "run manage.py migrate with an account that has the TRIGGER right",
            )
        return Result("audit_triggers", True, "audit_log and audit_seal accept INSERT only")

    return _bounded("audit_triggers", check)


def audit_rows() -> Result:
    """Whether the audit log can take rows: without them nothing is decided."""

    def check() -> Result:
        try:
            found = taking.obstacles()
        except DatabaseError as error:
            return Result("audit_rows", False, f"not known while the database is away ({_number(error)})")
        if found:
            cure = 'see "The audit log takes no rows" in docs/operations.md'
            return Result("audit_rows", False, f"audit_log may take no rows: {'; '.join(found)}", cure)
        return Result("audit_rows", True, "audit_log takes rows")

    return _bounded("audit_rows", check)


def audit_seals() -> Result:
    """How far the sealer is behind. A warning: rows are written and kept all the same, only not evident yet."""

    def check() -> Result:
        try:
            found = backlog()
        except DatabaseError as error:
            detail = f"not known while the database is away ({_number(error)})"
            return Result("audit_seals", True, detail, warning=True)
        late = found.age > settings.AUDIT_SEAL_LAG
        what = f"{found.rows} audit rows are not sealed, the oldest for {found.age:.0f} s"
        return Result(
            "audit_seals",
            True,
            what if late else f"{found.sealed} audit rows under {found.seals} seals, {found.rows} waiting",
            "is the worker of the queue publish running? manage.py audit_seal seals by hand" if late else "",
            found.age,
            warning=late,
            gauges={"audit_seal_lag_seconds": found.age, "audit_unsealed_rows": found.rows},
        )

    return _bounded("audit_seals", check)


def audit_chain() -> Result:
    """Whether the chain of seals is whole as far as can be told within a second, newest seals first: not the rows.

    Not part of readiness: one INSERT of somebody who may insert would take the service away."""

    def check() -> Result:
        try:
            found = look_at_chain(seconds=TIMEOUT / 2)
        except DatabaseError as error:
            return Result("audit_chain", False, f"not known while the database is away ({_number(error)})")
        if found.faults:
            more = f", and {len(found.faults) - 1} more" if len(found.faults) > 1 else ""
            return Result("audit_chain", False, f"{found.faults[0]}{more}", "run manage.py verify_audit")
        which = "all" if found.whole else "the newest"
        return Result("audit_chain", True, f"{which} {found.seals} seals of the audit log follow on each other")

    return _bounded("audit_chain", check)


def audit_losses() -> Result:
    """Observations of the last days that could not be written to the audit log. A warning."""

    def check() -> Result:
        try:
            found = read_losses()
        except RedisUnavailable:
            return Result("audit_losses", True, "not known while Redis is away", warning=True)
        gauges = {"audit_lost_observations": float(found.total)}
        if not found.total or found.last_at is None:
            return Result("audit_losses", True, "no observation was lost", gauges=gauges)
        return Result(
            "audit_losses",
            True,
            f"{found.total} observations could not be written, the last at {rfc3339(found.last_at)}",
            "see the log around that time, and audit_verify rows with the code OBSERVATIONS_LOST",
            warning=True,
            gauges=gauges,
        )

    return _bounded("audit_losses", check)


def outbox_lag() -> Result:
    """Age in seconds of the oldest event that the feed's publisher has not sent."""

    def check() -> Result:
        try:
            oldest = (
                AlertOutbox.objects.filter(published_at=None)
                .order_by("id")
                .values_list("created_at", flat=True)
                .first()
            )
        except DatabaseError as error:
            return Result("outbox_lag", False, f"not known while the database is away ({_number(error)})")
        age = max(0.0, (now() - oldest).total_seconds()) if oldest else 0.0
        return _lag(
            "outbox_lag",
            age,
            settings.READY_MAX_OUTBOX_LAG,
            "the oldest unsent alert event",
            "is the worker of the queue publish running? manage.py publish_outbox sends by hand",
        )

    return _bounded("outbox_lag", check)


def outbox_set_aside() -> Result:
    """Events that were not sent because their rows are damaged. A warning: all others go on."""

    def check() -> Result:
        try:
            found = set_aside().count()
        except DatabaseError as error:
            detail = f"not known while the database is away ({_number(error)})"
            return Result("outbox_set_aside", True, detail, warning=True)
        gauges = {"outbox_set_aside_rows": float(found)}
        if not found:
            return Result("outbox_set_aside", True, "no alert event is set aside", gauges=gauges)
        return Result(
            "outbox_set_aside",
            True,
            f"{found} alert events are damaged and were not sent",
            "set_aside_for in alert_outbox says why; manage.py publish_outbox --retry tells their alerts again",
            warning=True,
            gauges=gauges,
        )

    return _bounded("outbox_set_aside", check)


def core_window() -> Result:
    """The core system, where it is another server. A warning: what needs it says 503, all else goes on without."""

    def check() -> Result:
        try:
            # The breaker of this process is told what is found here, and is asked like by anybody.
            with connections["core"].cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchone()
        except (DatabaseError, InterfaceError):
            away = "the core system does not answer: snapshots are the last copies, advisors' reads are refused"
            return Result("core_window", True, away, "check the server and CORE_DATABASE_URL", warning=True)
        return Result("core_window", True, "the core system answers, read only")

    found = _bounded("core_window", check)
    # Not in time: the same to those who ask the core.
    return found if found.ok else replace(found, ok=True, warning=True)


def core_round() -> Result:
    """How old what was last seen of an external core may be. A warning: whoever is marked is judged all the same."""

    def check() -> Result:
        try:
            age, finished, away = round_age()
        except DatabaseError as error:
            return Result("core_round", True, f"not known while the database is away ({_number(error)})", warning=True)
        what = f"all changes in the core are seen but for the last {age:.0f} s"
        if not finished:
            what = f"the first round over the core's customers is under way for {age:.0f} s"
        late = age > settings.READY_MAX_CORE_ROUND
        advice = "are worker and beat running? manage.py scan_trades --core looks by hand" if late else ""
        detail = f"{what}; the core does not answer" if away else what
        return Result("core_round", True, detail, advice, age, warning=late)

    return _bounded("core_round", check)


def _client(url: str) -> redis.Redis:
    # (Others may have written bytes there that are no text.)
    return redis.Redis.from_url(
        url, decode_responses=True, encoding_errors="surrogateescape", socket_timeout=1.0, socket_connect_timeout=1.0
    )


def redis_state() -> Result:
    """The state Redis answers, is new enough, keeps what it is given, and says so when it cannot."""
    client = _client(settings.REDIS_URL)
    try:
        info: dict[str, Any] = client.info()  # type: ignore[assignment]
        refusal = _refusal_of_writes(client)
    except (redis.exceptions.RedisError, OSError) as error:
        advice = "start it: make run" if settings.EMBEDDED_REDIS else "check the server and REDIS_URL"
        return Result("redis", False, f"Redis does not answer ({type(error).__name__})", advice)
    finally:
        client.close()
    version = str(info.get("redis_version", "0"))
    faults: list[tuple[str, str]] = []
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LEAST_REDIS:
        faults.append((f"version {version} is older than 6.2", "upgrade it"))
    if info.get("maxmemory_policy") != "noeviction":
        policy = info.get("maxmemory_policy")
        faults.append((f"maxmemory-policy is {policy}: it may drop messages", "CONFIG SET maxmemory-policy noeviction"))
    if not info.get("aof_enabled"):
        faults.append(("AOF is off: a restart loses what is queued", "CONFIG SET appendonly yes"))
    elif info.get("aof_last_write_status", "ok") != "ok":
        faults.append(("it cannot write its AOF", "is its disk full?"))
    if str(info.get("role")) != "master":
        faults.append(("it is a replica and takes no writes", "point REDIS_URL at the master or at Sentinel"))
    elif refusal:
        faults.append((f"it refuses writes ({refusal})", "see its log; messages and profiles go to the database alone"))
    if faults:
        return Result("redis", False, "; ".join(fault for fault, _ in faults), "; ".join(cure for _, cure in faults))
    return Result("redis", True, f"Redis {version} answers, AOF on, noeviction")


def _refusal_of_writes(client: redis.Redis) -> str:
    """Why the server takes no writes (NOREPLICAS, MISCONF, OOM), '' where it does. What is asked changes nothing: an
    empty text is put into a text that is not there. 1 round trip."""
    try:
        client.setrange(LOCK(name="readiness"), 0, "")
    except redis.exceptions.ResponseError as error:
        if is_away(error):
            return _REFUSALS.get(type(error), str(error).partition(" ")[0])
    return ""


# Those of which the driver cuts the code off.
_REFUSALS: dict[type[Exception], str] = {
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.OutOfMemoryError: "OOM",
}


def worker_lag() -> Result:
    """Age in seconds of the oldest message that is not in the database yet; entry ids are the server's own clock."""
    client = _client(settings.REDIS_URL)
    try:
        pipe = client.pipeline(transaction=False)
        pipe.xrange(PENDING(), count=1)
        pipe.time()
        oldest, (seconds, micros) = pipe.execute()
    except redis.exceptions.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            return Result("worker_lag", False, f"not known: Redis answers {type(error).__name__}")
        return Result(
            "worker_lag", False, f"{PENDING()} is no stream: nothing can be queued", "manage.py reconcile --fix"
        )
    except (redis.exceptions.RedisError, OSError) as error:
        return Result("worker_lag", False, f"not known while Redis is away ({type(error).__name__})")
    finally:
        client.close()
    age = 0.0
    if oldest:
        age = max(0.0, seconds + micros / 1e6 - int(str(oldest[0][0]).partition("-")[0]) / 1000)
    return _lag(
        "worker_lag",
        age,
        settings.READY_MAX_WORKER_LAG,
        "the oldest message not yet in the database",
        "is the worker of the queue persist running? manage.py drain_messages drains by hand",
    )


def rule_figures() -> Result:
    """Versions of rules whose stored figures cannot be read. A warning: such a rule judges nothing, the others do."""

    def check() -> Result:
        try:
            found = damaged_versions()
        except DatabaseError as error:
            detail = f"not known while the database is away ({_number(error)})"
            return Result("rule_figures", True, detail, warning=True)
        gauges = {"rule_versions_damaged": float(len(found))}
        if not found:
            return Result("rule_figures", True, "the figures of all rules can be read", gauges=gauges)
        names = ", ".join(f"{one.rule_id} version {one.version} ({one.status}) of {one.tenant}" for one in found[:5])
        return Result(
            "rule_figures",
            True,
            f"{len(found)} versions of rules have figures that cannot be read, and judge nothing: {names}",
            "activate a version in their place (or drop the one in shadow); after mending a row by hand run manage.py "
            "scan_trades --all",
            warning=True,
            gauges=gauges,
        )

    return _bounded("rule_figures", check)


def alert_rows() -> Result:
    """Alerts and findings whose stored rows cannot be read. A warning: each concerns its own customer alone."""

    def check() -> Result:
        try:
            found = damaged_rows()
        except DatabaseError as error:
            detail = f"not known while the database is away ({_number(error)})"
            return Result("alert_rows", True, detail, warning=True)
        gauges = {"alert_rows_damaged": float(len(found))}
        if not found:
            return Result("alert_rows", True, "the rows of alerts and findings can be read", gauges=gauges)
        names = ", ".join(f"{one.table} {one.pk} ({', '.join(one.columns)})" for one in found[:5])
        return Result(
            "alert_rows",
            True,
            f"{len(found)} rows of alerts and findings cannot be read, and their customers are not judged: {names}",
            "mend them by hand: of a backup, or figures = '{}', subtypes = '[]' of a finding, which the next scan then "
            "revises; it is tried again by itself, and by manage.py scan_trades --all",
            warning=True,
            gauges=gauges,
        )

    return _bounded("alert_rows", check)


def notifications() -> Result:
    """Alerts told outside of the console: how far behind, and what failed. A warning: the console and the feed have all
    of them."""

    def check() -> Result:
        try:
            found = standing()
        except DatabaseError as error:
            detail = f"not known while the database is away ({_number(error)})"
            return Result("notifications", True, detail, warning=True)
        gauges = {
            "notifications_waiting": float(found.waiting),
            "notifications_late_seconds": found.late,
            "notifications_unread_events": float(found.unread),
            "notifications_failed": float(found.failed),
            "notifications_unknown": float(found.unknown),
        }
        late = found.late > settings.READY_MAX_OUTBOX_LAG or found.unread > MOST_UNREAD
        faults = [
            *([f"{found.lost} channels whose secrets no key opens"] if found.lost else []),
            *([f"{found.waiting} waiting, the oldest for {found.late:.0f} s; {found.unread} unread"] if late else []),
            *([f"{found.failed} given up within a day"] if found.failed else []),
            *([f"{found.unknown} within a day of which it is not known whether they arrived"] if found.unknown else []),
        ]
        if not faults:
            return Result("notifications", True, f"{found.waiting} notifications wait", gauges=gauges)
        advice = (
            "is the worker of the queue notify running? The console's list of notifications says why, and sends again"
        )
        return Result("notifications", True, "; ".join(faults), advice, warning=True, gauges=gauges)

    return _bounded("notifications", check)


MOST_UNREAD = 1000  # events of which no delivery was made yet


def readiness() -> list[Result]:
    """What `/health/ready` asks, in the order in which a reader wants the reasons."""
    core = [core_window(), core_round()] if settings.CORE_IS_EXTERNAL else []
    others = [audit_triggers(), audit_rows(), redis_state(), worker_lag(), outbox_lag(), outbox_set_aside()]
    others += [audit_seals(), audit_losses()]
    return [database(), *core, *others, rule_figures(), alert_rows(), notifications()]


def _lag(name: str, age: float, limit: float, what: str, advice: str) -> Result:
    if age > limit:
        return Result(name, False, f"{what} is {age:.0f} s old; {limit:.0f} s is the limit", advice, age)
    return Result(name, True, f"{what} is {age:.1f} s old" if age else "nothing is waiting", value=age)


def _database_name() -> str:
    if connection.vendor == "sqlite":
        return "SQLite"
    return "MariaDB" if getattr(connection, "mysql_is_mariadb", False) else "MySQL"


def _number(error: DatabaseError) -> str:
    """The driver's error number: its text may hold an account's name."""
    first = error.args[0] if error.args else ""
    return f"{type(error).__name__} {first}" if isinstance(first, int) else type(error).__name__
