"""One statement of an analyst: judged, written down, run, and written down again.

Steps: 1. the caller may ask; 2. the verdict; 3. one transaction: the log's row, the text, the audit row, committed
before anything runs; 4. run; 5. the row that says how it ended. A process killed between 3 and 5 leaves a row without
an end, which is shown as such.
Costs: 1 SQL for the grants, 3 INSERTs in the transaction, the statement on a connection of its own, 1 INSERT. Where
groups of few customers are left out, one statement more that counts them.
On the database being away: 503, nothing runs (closed). No Redis.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

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
from memory.profiles.queries import policies, running, slots
from memory.profiles.queries.gate import DIALECTS, MAX_CHARS, Verdict, judge
from memory.profiles.queries.grouped import has_query_in_group
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

logger = logging.getLogger(__name__)

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

    Errors: AUTH_403_SCOPE (403), SQL_BUSY (429); a refused statement is an answer here, and no error.
    """
    policies.may_ask(caller, "write")
    with slots.slots.one(caller.tenant, caller.actor_id):
        return _decide(caller, sql, dialect, QueryMode.CHECK)[0]


def run_query(*, caller: Caller, sql: str, dialect: str = "mysql") -> Answer:
    """Rows of one SELECT, at most ANALYTICS_ROWS, of the caller's tenant alone.

    Errors: AUTH_403_SCOPE (403); SQL_BUSY (429, nothing is judged or written down);
    SQL_INVALID, SQL_NOT_ONE_SELECT, SQL_UNKNOWN_NAME, SQL_TOO_COMPLEX (422),
    SQL_FORBIDDEN, SQL_PERSONAL_COLUMN, SQL_SINGLE_PERSON (403), each with `query_id`; SQL_TIMEOUT (504),
    SQL_RESULT_TOO_LARGE (413), SQL_FAILED (422), DATABASE_UNAVAILABLE (503).
    """
    refuse_inside_transaction("run_query()")
    policies.may_ask(caller, "write")
    with slots.slots.one(caller.tenant, caller.actor_id):
        return _run(caller, sql, dialect)


def _run(caller: Caller, sql: str, dialect: str) -> Answer:
    asked, statement, counting = _decide(caller, sql, dialect, QueryMode.RUN)
    if not asked.verdict.allowed:
        verdict = asked.verdict
        raise DomainError(
            verdict.code, verdict.detail, query_id=asked.query_id,
            **({"columns": list(verdict.personal)} if verdict.code == "SQL_PERSONAL_COLUMN" else {}),
        )  # fmt: skip
    began = time.monotonic()
    try:
        judged = asked.verdict.statement
        full = judged is not None and not has_query_in_group(judged)
        result = running.run(statement, asked.verdict.outputs, rows=settings.ANALYTICS_ROWS, full_groups=full)
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
        [[groups, customers]] = running.run(counting, COUNTS, rows=1, full_groups=False).rows
    except Ended:
        return Withheld(verdict.least, None)  # the answer stands
    return Withheld(verdict.least, groups if customers >= verdict.least else None)


def _decide(caller: Caller, sql: str, dialect: str, mode: QueryMode) -> tuple[Asked, str, str]:
    """The verdict as it is in the log, the statement that runs, and the one that counts what it leaves out."""
    granted = policies.granted_columns(tenant=caller.tenant, actor_id=caller.actor_id)
    verdict, statement, counting = _judged(caller, sql, dialect, granted)
    query_id = new_id()
    decision = QueryDecision.ALLOWED if verdict.allowed else QueryDecision.REFUSED
    with transaction.atomic():
        AnalyticsQueryLog.objects.create(
            query_id=query_id, tenant=caller.tenant, actor_id=caller.actor_id, principal_id=caller.principal_id,
            mode=mode, dialect=dialect if dialect in DIALECTS else "", decision=decision, code=verdict.code,
            fingerprint=verdict.fingerprint,
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


def _judged(caller: Caller, sql: str, dialect: str, granted: Collection[str]) -> tuple[Verdict, str, str]:
    """Closed: whatever goes wrong on the way to a statement that runs is a refusal, and is written down as one. The
    parser is another's, and meets texts here that nobody has thought of."""
    verdict = Verdict()
    try:
        verdict = judge(sql, dialect=dialect, granted=granted, moment=now(), least=settings.ANALYTICS_MIN_GROUP)
        if verdict.statement is None:
            return verdict, "", ""
        named: dict[str, Any] = {"tenant": caller.tenant, "vendor": running.vendor()}
        statement = executable(verdict.statement, rows=settings.ANALYTICS_ROWS + 1, **named)
        counting = executable(verdict.left_out, rows=1, **named) if verdict.left_out is not None else ""
        return verdict, statement, counting
    except (NotAsJudged, RecursionError):
        code, detail = "SQL_FORBIDDEN", "it cannot be written anew as it was read"
    except Exception as fault:  # noqa: BLE001
        # By its kind alone: the parser's own words hold the text.
        logger.warning("a statement could not be judged: %s", type(fault).__name__)
        code, detail = "SQL_INVALID", "it cannot be understood"
    return Verdict(code, detail, verdict.normalised, verdict.fingerprint, verdict.tables, verdict.columns,
                   verdict.personal), "", ""  # fmt: skip


def _storable(sql: str) -> str:
    """The text that is kept. What UTF-8 cannot hold is shown as its escape: such a text was refused, and is evidence.

    Of a text that is longer than any that runs, its beginning, how long it was, and its SHA-256: the rest was never
    looked at. Not cut within a word, for half of a name would be found by no erasure.
    """
    whole = sql.encode("utf-8", "backslashreplace")
    if len(sql) <= MAX_CHARS:
        return whole.decode()
    cut = next((place for place in range(MAX_CHARS, MAX_CHARS - 200, -1) if not sql[place - 1].isalnum()), MAX_CHARS)
    kept = sql[:cut].encode("utf-8", "backslashreplace").decode()
    return f"{kept}… ({len(sql)} characters, SHA-256 {hashlib.sha256(whole).hexdigest()})"


def _end(
    caller: Caller, query_id: str, began: float, outcome: QueryOutcome, *, code: str = "", result: Result | None = None
) -> int:
    duration = int((time.monotonic() - began) * 1000)
    AnalyticsQueryEnd.objects.create(
        query_id=query_id, tenant=caller.tenant, outcome=outcome, code=code, duration_ms=duration,
        rows=len(result.rows) if result else 0, bytes=result.bytes if result else 0,
    )  # fmt: skip
    return duration
