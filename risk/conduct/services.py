"""The scan of advisors' conduct, and the door by which advisor agents report a trade request.

How one round goes (many may run at once, and any may be killed anywhere):
1. `collect`: new rows of the audit log become marks on the advisors they speak of.
2. `look_again`: reported trades that the core lacked, or whose facts changed, are looked up; what changed is marked.
3. Claim: all marks of one advisor, for CLAIM_SECONDS. Marks of another scanner that appeared meanwhile win.
4. Judge the days that the marks can have changed, from what the log and the core now say, and settle them.
5. Delete exactly the marks that were claimed; are some gone or another's, the advisor is marked again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Q

from config.base.clock import business_date, now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id, new_id
from config.base.trace import is_trace_id, traced
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from guard.audit.models import AuditLog, Decision, EventType
from guard.audit.selectors import advisors_heard_of, conduct_span
from guard.audit.services import observe, record
from memory.erasure.tombstones import erased_among
from risk.alerts.models import RiskAlertHit
from risk.alerts.services import settle_advisor
from risk.alerts.tally import pattern_of
from risk.calendar.selectors import WorkCalendar, work_calendar
from risk.conduct.following import PATIENCE, collect, look_again, mark
from risk.conduct.models import ConductChange, TradeRequest
from risk.conduct.reading import Material, Span, campaigns_of, conduct_of
from risk.rules.engine import ADVISOR_MODULES, Rule
from risk.rules.facts import EXECUTED
from risk.rules.hit import DATA_QUALITY, Hit
from risk.rules.risk_008 import PROBE_THEN_TRADE, Params
from risk.rules.ruling import Shadow, ruling
from risk.rules.shadow import shadow_advisor

logger = logging.getLogger(__name__)

LOCK_SECONDS = 20.0  # after which no lock is asked for again
CLAIM_SECONDS = 60  # renewed while the scanner lives; a dead one's advisors wait so long
TICK_ADVISORS = 200  # the most that one tick of the beat takes on
SPAN_DAYS = 31  # judged at once
MISSING_TRADE = "missing_trade"


# --- reports of advisor agents --------------------------------------------------------------------------------------


def may_report(caller: Caller) -> None:
    """Errors: AUTH_403_SCOPE (403, one audit row): only advisor agents report."""
    authorize(caller, Resource.OBSERVATION, "write", owner_id=caller.actor_id)


def report_trade_request(
    *, caller: Caller, trade_id: str, trace_id: str = "", decision: str = Decision.REQUESTED, code: str = ""
) -> AuditLog:
    """One `trade_request` row of the audit log about the advisor that the caller acts for.

    trade_id: as the core has it or will have it. trace_id: of the conversation that led to it; '' for this request's.
    decision: requested, or refused where the agent itself turned it down, with a `code` that says why.
    Cost: 1 INSERT. Errors: AUTH_403_SCOPE (403), INVALID_ID, INVALID_REQUEST (422), DATABASE_UNAVAILABLE (503).
    """
    may_report(caller)
    check_id("trade_id", trade_id)
    if trace_id and not is_trace_id(trace_id):
        raise DomainError("INVALID_REQUEST", "trace_id is 32 hexadecimal digits in lower case")
    if decision not in (Decision.REQUESTED, Decision.REFUSED):
        raise DomainError("INVALID_REQUEST", "decision is requested or refused")
    if code:
        if decision == Decision.REQUESTED:
            raise DomainError("INVALID_REQUEST", "a code says why a request was refused; this one was not")
        code = check_id("code", code)[:32]
    return record(**trade_request(caller, trade_id=trade_id, code=code, decision=decision), trace_id=trace_id or None)


def trade_request(caller: Caller, *, trade_id: str, code: str = "", decision: str = "") -> dict[str, Any]:
    """The row of a report, as `record` takes it. decision: where it is not given, the code says it."""
    return {
        "tenant": caller.tenant,
        "event_type": EventType.TRADE_REQUEST,
        "decision": decision or (Decision.REFUSED if code else Decision.REQUESTED),
        "actor_type": caller.actor_type,
        "actor_id": caller.actor_id,
        "agent": caller.agent,
        "object_type": "core_trade",
        "object_id": trade_id,
        "code": code,
        "input_summary": {"trade_id": trade_id, **({"code": code} if code else {})},
    }


# --- the scan ---------------------------------------------------------------------------------------------------------


@dataclass
class ConductReport:
    """What a scan did. advisors: judged. hits, data_quality: live after it on the days judged. failed: advisors whose
    evaluation raised; they are tried again. left: still with another scanner when our patience ended."""

    rows: int = 0
    advisors: int = 0
    hits: int = 0
    data_quality: int = 0
    failed: list[str] = field(default_factory=list)
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "advisors": self.advisors,
            "hits": self.hits,
            "data_quality": self.data_quality,
            "failed": sorted(self.failed),
            "left": self.left,
        }


@dataclass(frozen=True)
class _Claim:
    tenant: str
    advisor_id: str
    token: str
    rows: Sequence[tuple[int, datetime, datetime]]


@dataclass(frozen=True)
class _Ruling:
    """What a tenant has in force. rule: None where every version was retired."""

    rule: Rule | None
    shadows: list[Shadow]
    calendar: WorkCalendar
    campaigns: dict[str, list[tuple[date, date]]]


def scan_conduct(
    *,
    tenant: str | None = None,
    everything: bool = False,
    unfound: bool = False,
    limit: int | None = None,
    patience: float = 0.0,
    audited: bool = False,
) -> ConductReport:
    """One round, as the module says.

    tenant: only its advisors are judged (the log is read for all). everything: judge every advisor from their first
    row on. unfound: look up also the trades that are not due. limit: at most so many advisors. patience: seconds to
    wait for advisors that another scanner has just now. audited: one `rule_scan` row a tenant that had work.
    Errors: INVALID_ID; those of one advisor's evaluation are counted, not raised.
    Cost with nothing new: 4 queries, 1 more while ids of the log are missing.
    """
    if tenant is not None:
        check_id("tenant", tenant)
    report = ConductReport(rows=collect())
    look_again(tenant=tenant, unfound=unfound or everything)
    if everything:
        mark_everyone(tenant)
    worked: dict[str, list[int]] = {}
    passed: set[tuple[str, str]] = set()
    deadline = time.monotonic() + patience
    while limit is None or report.advisors + len(report.failed) < limit:
        claim = _claim(tenant, passed)
        if claim is None:
            report.left = len(passed & _waiting(tenant)) if passed else 0
            if not report.left or time.monotonic() >= deadline:
                break
            passed.clear()
            time.sleep(0.1)
            continue
        passed.add((claim.tenant, claim.advisor_id))  # a failed one is not taken again in this round
        try:
            with traced() as trace_id:
                # After the claim: whoever changes it later marks the advisors, and so they are judged again.
                hits = _judge(claim, _ruling(claim.tenant), trace_id)
            marked_again = _release(claim)
        except (DatabaseError, DomainError):
            logger.exception("the scan of one advisor failed in the database")
            report.failed.append(claim.advisor_id)
        except Exception:
            logger.exception("the scan of one advisor failed")
            report.failed.append(claim.advisor_id)
        else:
            if marked_again:
                passed.discard((claim.tenant, claim.advisor_id))
            quality = sum(1 for hit in hits if hit.rule_id == DATA_QUALITY)
            report.advisors += 1
            report.data_quality += quality
            report.hits += len(hits) - quality
            counts = worked.setdefault(claim.tenant, [0, 0])
            counts[0] += 1
            counts[1] += len(hits) - quality
    if audited:
        for name, (advisors, found) in worked.items():
            _audit(name, advisors, found)
    return report


def _audit(tenant: str, advisors: int, hits: int) -> None:
    observe(
        tenant=tenant,
        event_type=EventType.RULE_SCAN,
        decision=Decision.COMPLETED,
        actor_id="scan_trades",
        object_type="risk_rule",
        code=next(iter(ADVISOR_MODULES)),
        input_summary={"advisors": advisors, "hits": hits},
    )


def _ruling(tenant: str) -> _Ruling:
    ruled = ruling(tenant=tenant, modules=ADVISOR_MODULES)
    rule = ruled.active[0] if ruled.active else None
    return _Ruling(rule, ruled.shadows, work_calendar(tenant=tenant), campaigns_of(tenant=tenant))


def mark_everyone(tenant: str | None) -> None:
    """Every advisor of whom the log tells something is judged again, from their first row on."""
    for name, advisor_id in advisors_heard_of(tenant=tenant):
        span = conduct_span(tenant=name, advisor_id=advisor_id)
        if span is not None:
            mark(tenant=name, advisor_id=advisor_id, since=span[0], until=span[1])


# --- claims -----------------------------------------------------------------------------------------------------------


def _rows(tenant: str | None) -> Any:
    return ConductChange.objects.all() if tenant is None else ConductChange.objects.filter(tenant=tenant)


def _waiting(tenant: str | None) -> set[tuple[str, str]]:
    return set(_rows(tenant).values_list("tenant", "advisor_id").distinct())


def _claim(tenant: str | None, passed: set[tuple[str, str]]) -> _Claim | None:
    """Step 3. None when nobody waits."""
    while True:
        free = _rows(tenant).filter(Q(claimed_until=None) | Q(claimed_until__lt=now()))
        for name, advisor_id in passed:
            free = free.exclude(tenant=name, advisor_id=advisor_id)
        head = free.order_by("id").values_list("tenant", "advisor_id").first()
        if head is None:
            return None
        claim = _take(*head)
        if claim is not None:
            return claim
        passed.add(head)


def _take(tenant: str, advisor_id: str) -> _Claim | None:
    token, moment = new_id(), now()
    of_advisor = ConductChange.objects.filter(tenant=tenant, advisor_id=advisor_id)
    free = of_advisor.filter(Q(claimed_until=None) | Q(claimed_until__lt=moment))
    until = moment + timedelta(seconds=CLAIM_SECONDS)
    retry_conflicts(lambda: free.update(claim=token, claimed_until=until), longest=LOCK_SECONDS)
    ours: list[tuple[int, datetime, datetime]] = []
    foreign = False
    for row in of_advisor:
        if row.claim == token:
            ours.append((row.pk, row.since, row.until))
        elif row.claim is not None and row.claimed_until is not None and row.claimed_until >= moment:
            foreign = True
    if foreign:
        given_back = of_advisor.filter(claim=token)
        retry_conflicts(lambda: given_back.update(claim=None, claimed_until=None), longest=LOCK_SECONDS)
        return None
    return _Claim(tenant, advisor_id, token, ours) if ours else None


def _renew(claim: _Claim) -> None:
    ours = ConductChange.objects.filter(id__in=[row[0] for row in claim.rows], claim=claim.token)
    until = now() + timedelta(seconds=CLAIM_SECONDS)
    retry_conflicts(lambda: ours.update(claimed_until=until), longest=LOCK_SECONDS)


def _release(claim: _Claim) -> bool:
    """Step 5. Whether the advisor was marked again."""

    def work() -> bool:
        with transaction.atomic():
            ids = [row[0] for row in claim.rows]
            deleted, _kinds = ConductChange.objects.filter(id__in=ids, claim=claim.token).delete()
            if deleted == len(ids):
                return False
            mark(
                tenant=claim.tenant,
                advisor_id=claim.advisor_id,
                since=min(row[1] for row in claim.rows),
                until=max(row[2] for row in claim.rows),
            )
            return True

    return retry_conflicts(work, longest=LOCK_SECONDS)


# --- one advisor --------------------------------------------------------------------------------------------------


def _judge(claim: _Claim, ruling: _Ruling, trace_id: str) -> list[Hit]:
    """Step 4: all that is true of the days that the marks can have changed."""
    found: list[Hit] = []
    rules = [*([ruling.rule] if ruling.rule else []), *(rule for shadow in ruling.shadows for rule in shadow.rules)]
    if not rules:
        return found
    reach = widest([rule.params for rule in rules])
    renewed = time.monotonic()
    for span in _spans(claim, reach):
        if time.monotonic() - renewed > CLAIM_SECONDS / 3:
            _renew(claim)
            renewed = time.monotonic()
        material = conduct_of(
            tenant=claim.tenant,
            advisor_id=claim.advisor_id,
            span=span,
            params=reach,
            calendar=ruling.calendar,
            campaigns=ruling.campaigns,
        )
        hits: list[Hit] = []
        if ruling.rule is not None:
            hits = judged(material, ruling.rule, span, now())
            settle_advisor(
                tenant=claim.tenant,
                advisor_id=claim.advisor_id,
                since=span.since,
                until=span.until,
                hits=hits,
                final_trades=material.final_trades,
                stays=partial(_of_the_erased, claim.tenant, material),
                trace_id=trace_id,
            )
            found.extend(hits)
        shadow_advisor(
            tenant=claim.tenant,
            advisor_id=claim.advisor_id,
            since=span.since,
            until=span.until,
            shadows=ruling.shadows,
            judge=partial(patterns, material, span),
            active=hits,
        )
    return found


def widest(found: Sequence[Params]) -> Params:
    """Parameters whose windows hold those of all that are given: as much is read, and each rule takes its own."""
    names = ("push_days", "trade_hours", "probing_minutes")
    return replace(found[0], **{name: max(getattr(params, name) for params in found) for name in names})


def _of_the_erased(tenant: str, material: Material, row: RiskAlertHit) -> bool:
    """Whose refusals the log holds is told by a key that an erasure destroys: what was found before it stays found."""
    trade = material.final_trades.get(row.trade_id)
    if pattern_of(row.figures) != PROBE_THEN_TRADE or trade is None or trade.status != EXECUTED:
        return False
    return erased_among(tenant, [material.customers[row.trade_id]])


def patterns(material: Material, span: Span, rule: Rule) -> list[Hit]:
    """What the rule finds on the days of a span."""
    found = rule.evaluate(material.conduct, rule.params, rule.version)
    return [hit for hit in found if span.since <= hit.occurred_at < span.until]


def judged(material: Material, rule: Rule, span: Span, at: datetime) -> list[Hit]:
    """The findings of a span: the rule's, and reported trades that the core still lacks a day after (at: now)."""
    hits = patterns(material, span, rule)
    for request in material.conduct.requests:
        lacking = request.trade is None and not request.refused and at >= request.at + PATIENCE
        if lacking and span.since <= request.at < span.until:
            hits.append(
                Hit(
                    rule_id=DATA_QUALITY,
                    rule_version=1,
                    evidence_key=f"request:{request.id}",
                    customer_id="",
                    trade_id=request.trade_id,
                    trade_version=0,
                    occurred_at=request.at,
                    score=0,
                    subtypes=(MISSING_TRADE,),
                    figures={"missing": [MISSING_TRADE], "reported_at": rfc3339(request.at)},
                    advisor_id=material.conduct.advisor_id,
                )
            )
    return hits


def _spans(claim: _Claim, params: Any) -> list[Span]:
    """The business days whose findings a change between two instants can touch, in pieces of SPAN_DAYS."""
    reach = timedelta(days=max(params.push_days, 1))
    days = [(business_date(since), business_date(until + reach)) for _id, since, until in claim.rows]
    # A refusal also touches the days on which the trades of the day after it were reported.
    lasting = timedelta(hours=params.trade_hours)
    for _id, since, until in claim.rows:
        rows = TradeRequest.objects.filter(tenant=claim.tenant, advisor_id=claim.advisor_id)
        rows = rows.filter(traded_at__gt=since, traded_at__lte=until + lasting)
        days.extend((business_date(at), business_date(at)) for at in rows.values_list("at", flat=True))
    return list(pieces(days))


def pieces(days: Iterable[tuple[date, date]]) -> Iterable[Span]:
    """Days from first to last, joined where they meet, in spans of at most SPAN_DAYS."""
    joined: list[list[date]] = []
    for first, last in sorted(days):
        if joined and first <= joined[-1][1] + timedelta(days=1):
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    for first, last in joined:
        while first <= last:
            end = min(last, first + timedelta(days=SPAN_DAYS - 1))
            yield Span(first, end)
            first = end + timedelta(days=1)
