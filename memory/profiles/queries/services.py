"""One statement of an analyst: judged, written down, run, and written down again.

Steps: 1. the caller may ask; 2. the verdict; 3. one transaction: the log's row, the text, the audit row, committed
before anything runs; 4. run; 5. the row that says how it ended. A process killed between 3 and 5 leaves a row without
an end, which is shown as such.
Costs: 1 SQL for the grants, 3 INSERTs in the transaction, the statement on a connection of its own, 1 INSERT. Where
groups of few customers are left out, one statement more that counts them.
On the database being away: 503, nothing runs (closed). No Redis.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from config.base.clock import now
from config.base.db import refuse_inside_transaction
from config.base.errors import DomainError
from config.base.ids import new_id
from config.base.trace import current_trace_id
from guard.access.services import Caller
from guard.audit.models import Decision, EventType
from guard.audit.services import record
from memory.core.personal import Kind
from memory.profiles.queries import policies, running
from memory.profiles.queries.gate import Verdict, judge
from memory.profiles.queries.models import (
    AnalyticsQueryEnd,
    AnalyticsQueryLog,
    AnalyticsQueryText,
    QueryDecision,
    QueryMode,
    QueryOutcome,
)
from memory.profiles.queries.reach import Output
from memory.profiles.queries.rewriting import NotAsJudged, executable
from memory.profiles.queries.running import Ended, Result

NAMES_IN_AUDIT = 20
COUNTS = (Output("n", Kind.WHOLE), Output("m", Kind.WHOLE))


@dataclass(frozen=True)
class Asked:
    """A statement and its verdict, as the log has them."""

    query_id: str
    verdict: Verdict


@dataclass(frozen=True)
class Withheld:
    """What an answer leaves out. under: groups of fewer customers than this. rows: how many groups that were; None
    where there were none, or to tell how many would itself tell of fewer customers."""

    under: int
    rows: int | None


@dataclass(frozen=True)
class Answer:
    query_id: str
    verdict: Verdict
    result: Result
    duration_ms: int
    withheld: Withheld | None = None


def check_query(*, caller: Caller, sql: str, dialect: str = "mysql") -> Asked:
    """The verdict alone; nothing runs. It is in the log and the audit too, for whoever tries the gate's edges.

    Errors: AUTH_403_SCOPE (403); a refused statement is an answer here, and no error.
    """
    policies.may_ask(caller, "write")
    return _decide(caller, sql, dialect, QueryMode.CHECK)[0]


def run_query(*, caller: Caller, sql: str, dialect: str = "mysql") -> Answer:
    """Rows of one SELECT, at most ANALYTICS_ROWS, of the caller's tenant alone.

    Errors: AUTH_403_SCOPE (403); SQL_INVALID, SQL_NOT_ONE_SELECT, SQL_UNKNOWN_NAME, SQL_TOO_COMPLEX (422),
    SQL_FORBIDDEN, SQL_PERSONAL_COLUMN, SQL_SINGLE_PERSON (403), each with `query_id`; SQL_TIMEOUT (504),
    SQL_RESULT_TOO_LARGE (413), SQL_FAILED (422), DATABASE_UNAVAILABLE (503).
    """
    refuse_inside_transaction("run_query()")
    policies.may_ask(caller, "write")
    asked, statement, counting = _decide(caller, sql, dialect, QueryMode.RUN)
    if not asked.verdict.allowed:
        verdict = asked.verdict
        raise DomainError(
            verdict.code, verdict.detail, query_id=asked.query_id,
            **({"columns": list(verdict.personal)} if verdict.code == "SQL_PERSONAL_COLUMN" else {}),
        )  # fmt: skip
    began = time.monotonic()
    try:
        result = running.run(statement, asked.verdict.outputs, rows=settings.ANALYTICS_ROWS)
        withheld = _withheld(asked.verdict, result, counting)
    except Ended as ended:
        _end(caller, asked.query_id, began, ended.outcome, code=ended.error.code)
        ended.error.extra["query_id"] = asked.query_id
        raise ended.error from None
    except Exception:
        # A fault of ours: the log says that it is over, the caller hears of it as of any other.
        _end(caller, asked.query_id, began, QueryOutcome.FAILED, code="INTERNAL")
        raise
    duration = _end(caller, asked.query_id, began, QueryOutcome.DONE, result=result)
    return Answer(asked.query_id, asked.verdict, result, duration, withheld)


def _withheld(verdict: Verdict, result: Result, counting: str) -> Withheld | None:
    if not verdict.least:
        return None
    if verdict.one_row:
        return Withheld(verdict.least, 0 if result.rows else 1)
    if not counting:
        return Withheld(verdict.least, None)
    try:
        [[groups, customers]] = running.run(counting, COUNTS, rows=1).rows
    except Ended:
        return Withheld(verdict.least, None)  # the answer stands
    return Withheld(verdict.least, groups if customers >= verdict.least else None)


def _decide(caller: Caller, sql: str, dialect: str, mode: QueryMode) -> tuple[Asked, str, str]:
    """The verdict as it is in the log, the statement that runs, and the one that counts what it leaves out."""
    granted = policies.granted_columns(tenant=caller.tenant, actor_id=caller.actor_id)
    verdict = judge(sql, dialect=dialect, granted=granted, moment=now(), least=settings.ANALYTICS_MIN_GROUP)
    statement = counting = ""
    if verdict.statement is not None:
        try:
            statement = executable(
                verdict.statement, tenant=caller.tenant, vendor=running.vendor(), rows=settings.ANALYTICS_ROWS + 1
            )
            if verdict.left_out is not None:
                counting = executable(verdict.left_out, tenant=caller.tenant, vendor=running.vendor(), rows=1)
        except (NotAsJudged, RecursionError):
            verdict = Verdict("SQL_FORBIDDEN", "it cannot be written anew as it was read", verdict.normalised,
                              verdict.fingerprint, verdict.tables, verdict.columns, verdict.personal)  # fmt: skip
    query_id = new_id()
    decision = QueryDecision.ALLOWED if verdict.allowed else QueryDecision.REFUSED
    with transaction.atomic():
        AnalyticsQueryLog.objects.create(
            query_id=query_id, tenant=caller.tenant, actor_id=caller.actor_id, principal_id=caller.principal_id,
            mode=mode, dialect=dialect[:16], decision=decision, code=verdict.code, fingerprint=verdict.fingerprint,
            normalised=verdict.normalised, tables=list(verdict.tables), columns=list(verdict.columns),
            personal=list(verdict.personal), row_limit=settings.ANALYTICS_ROWS, seconds_limit=running.seconds(),
            trace_id=current_trace_id(),
        )  # fmt: skip
        AnalyticsQueryText.objects.create(query_id=query_id, tenant=caller.tenant, text=_storable(sql))
        record(
            tenant=caller.tenant,
            event_type=EventType.ANALYTICS_SQL,
            decision=Decision.ALLOWED if verdict.allowed else Decision.REFUSED,
            actor_type=caller.actor_type,
            actor_id=caller.actor_id,
            agent=caller.agent,
            object_type="analytics_query",
            object_id=query_id,
            code=verdict.code,
            input_summary={
                **({"code": verdict.code} if verdict.code else {}),
                "mode": mode.value,
                "fingerprint": verdict.fingerprint,
                "tables": list(verdict.tables),
                "columns": list(verdict.columns)[:NAMES_IN_AUDIT],
                "personal": list(verdict.personal),
            },
        )
    return Asked(query_id, verdict), statement, counting


def _storable(sql: str) -> str:
    """What UTF-8 cannot hold is shown as its escape: such a text was refused, and is evidence."""
    return sql.encode("utf-8", "backslashreplace").decode()


def _end(
    caller: Caller, query_id: str, began: float, outcome: QueryOutcome, *, code: str = "", result: Result | None = None
) -> int:
    duration = int((time.monotonic() - began) * 1000)
    AnalyticsQueryEnd.objects.create(
        query_id=query_id, tenant=caller.tenant, outcome=outcome, code=code, duration_ms=duration,
        rows=len(result.rows) if result else 0, bytes=result.bytes if result else 0,
    )  # fmt: skip
    return duration
