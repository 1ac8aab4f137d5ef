"""From what is true of a customer's trades to what is recorded of it: hits, alerts, and the word to the officers."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import Q

from config.base.db import LONGEST_SECONDS, retry_conflicts
from config.base.errors import DomainError
from config.base.trace import current_trace_id
from risk.alerts.cases import Cases, Changed, LazyCalendar, cases_query, holders_of, write_all
from risk.alerts.deadlines import OPEN
from risk.alerts.hints import hint
from risk.alerts.merging import ADVISOR_RULES
from risk.alerts.models import HitState, RiskAlertHit
from risk.alerts.settlement import SLICE, Settlement, SettleResult, overtaken
from risk.rules.hit import DATA_QUALITY, FinalTrade, Hit

logger = logging.getLogger(__name__)


def settle_customer(
    *,
    tenant: str,
    customer_id: str,
    hits: Sequence[Hit],
    final_trades: Mapping[str, FinalTrade],
    trace_id: str = "",
    rule_ids: Collection[str] | None = None,
    beside: Callable[[], object] | None = None,
) -> tuple[SettleResult, Sequence[RiskAlertHit]]:
    """Makes the stored live hits of a customer equal to `hits`, all that are true of the customer now.

    Answers what was done, and the live hits as they then stand.

    hits: from a complete evaluation, in the order of their trades; findings on missing facts (DATA_QUALITY) too.
    final_trades: the customer's trades as they now stand; they tell why a finding is gone.
    rule_ids: the rules that were evaluated; None means all that speak of customers. Hits of others are left alone,
        but for those whose trade was cancelled, reversed or corrected since: they are marked.

    beside: called in each transaction that changes something, for what has to be written with it.

    1. Read the live hits and what decides where others go. An unchanged customer costs this one query.
    2. What is gone is marked `cancelled` (its trade was cancelled or reversed), `superseded` (its trade has a
       higher version) or `withdrawn`.
    3. What is new or has other figures finds its alert. All this is worked out first, then written in one transaction
       with alerts, audit and outbox rows (SLICE changes at most; more are several).
    4. After that `risk:dedup` hints are set. With Redis away this is skipped and nothing else changes.

    Cost of a first finding that opens an alert: 1 query to read, 1 for the holidays (none where the limits run by
    the clock), 4 INSERTs, 1 more where it has a level; and the pseudonym of a customer whom the audit has not met.
    Of one that joins an alert: 1 to read, 1 to lock, 1 UPDATE, 3 INSERTs.

    Repeating it changes nothing. Two scanners at once end with one live hit, one alert and one event a finding:
    unique keys and the alerts' versions decide, and the loser reads again and joins.
    Errors: ValueError for hits of another customer, of a rule outside `rule_ids`, or twice for one evidence key.
    """
    settlement = _of_customer(
        tenant, Findings(customer_id, hits, final_trades, trace_id or current_trace_id()), rule_ids, beside
    )
    return settlement.run(live=Q(state=HitState.LIVE))


@dataclass(frozen=True)
class Findings:
    """What `settle_customer` takes of one customer. live: the customer's live hits, as `live_hits_of` reads them."""

    customer_id: str
    hits: Sequence[Hit]
    final_trades: Mapping[str, FinalTrade]
    trace_id: str
    live: Sequence[RiskAlertHit] = ()


def settle_customers(
    *,
    tenant: str,
    findings: Sequence[Findings],
    rule_ids: Collection[str] | None = None,
    alive: Callable[[], object] = lambda: None,
    longest: float = LONGEST_SECONDS,
) -> dict[str, SettleResult | Exception]:
    """As `settle_customer` of each, with the same end: what became of each, by customer; an error, where it failed.

    alive: called between transactions, for whoever holds a claim. longest: as `retry_conflicts` takes it, for one who
    is settled alone.

    1. Customers of whom nothing changed cost nothing.
    2. The others go together, SLICE changes at a time: read in one query, each worked out by itself, written in one
       transaction with an INSERT a table, after a look at all alerts they rest on, under their locks.
    3. Where that fails, for whatever reason (an officer or another scanner was first, a deadlock, one customer's
       fault), nothing of it is written and each of them is settled alone: one that fails stops nobody else.
    4. The hints of all are one call.
    """
    done: dict[str, SettleResult | Exception] = {}
    together: list[Settlement] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if together:
            alive()
            done.update(_settle_together(tenant, together, alive, longest))
            together.clear()
            size = 0

    for found in findings:
        try:
            settlement = _of_customer(tenant, found, rule_ids, None)
            changes = settlement.changes(found.live)
        except Exception as error:  # noqa: BLE001 - logged, and counted as failed
            _log(error, "findings of one customer do not belong in a settlement")
            done[found.customer_id] = error
            continue
        # 1
        if not changes:
            done[found.customer_id] = SettleResult(unchanged=len(settlement.wanted))
            continue
        # 2
        if size + changes > SLICE:
            flush()
        together.append(settlement)
        size += changes
    flush()
    return done


def _settle_together(
    tenant: str, settlements: Sequence[Settlement], alive: Callable[[], object], longest: float
) -> dict[str, SettleResult | Exception]:
    if len(settlements) > 1:
        try:
            try:
                return retry_conflicts(lambda: _write_together(tenant, settlements), attempts=2)
            except Changed:
                raise
            except IntegrityError:  # a trade has changed hands, or another scanner was first
                return retry_conflicts(lambda: _write_together(tenant, settlements, corrected=True), attempts=2)
        except Exception as error:  # noqa: BLE001 - nothing was written; each tells by itself what is wrong with it
            logger.info("customers that could not be settled together are settled alone: %s", type(error).__name__)
    # 3
    done: dict[str, SettleResult | Exception] = {}
    for one in settlements:
        alive()
        try:
            done[one.customer_id] = one.run(live=Q(state=HitState.LIVE), longest=longest, alive=alive)[0]
        except Exception as error:  # noqa: BLE001 - logged, and counted as failed
            _log(error, "one customer's findings could not be settled")
            done[one.customer_id] = error
    return done


def _log(error: Exception, what: str) -> None:
    """Called where it was caught. What is damaged is no fault of the code: its columns say more than a traceback."""
    if isinstance(error, DomainError):
        logger.error("one customer is not judged: %s", error.detail)
    else:
        logger.exception(what)


def _write_together(
    tenant: str, settlements: Sequence[Settlement], *, corrected: bool = False
) -> dict[str, SettleResult | Exception]:
    """corrected: look what others have under the keys of the new findings. One query more."""
    by_customer: dict[str, list[RiskAlertHit]] = defaultdict(list)
    rows = cases_query(
        RiskAlertHit.objects.filter(tenant=tenant, customer_id__in=[one.customer_id for one in settlements]),
        anchors=set().union(*(one.anchors for one in settlements)),
        evidence=set().union(*(one.evidence for one in settlements)),
        slots=set().union(*(one.slots for one in settlements)),
        live=Q(state=HitState.LIVE),
    )
    for row in rows:
        by_customer[row.customer_id].append(row)
    calendar = LazyCalendar(tenant)
    all_cases = [Cases(tenant, by_customer[one.customer_id], calendar) for one in settlements]
    known: list[RiskAlertHit] = []
    if corrected:
        new = (one.unknown(cases.live()) for one, cases in zip(settlements, all_cases, strict=True))
        known += holders_of(tenant, set().union(*new))
        for cases in all_cases:
            cases.count_revisions(known)
    worked = [one.work_out(cases) for one, cases in zip(settlements, all_cases, strict=True)]
    if any(one.left for one in worked):
        raise Changed("more has to be done than was read before")
    gone = {pk for cases in all_cases for pk in cases.retired}
    if any(row.state == HitState.LIVE and row.pk not in gone for row in known):
        raise Changed("a finding has to be taken from somebody")
    with transaction.atomic():
        write_all([one.cases for one in worked if one.result.changed])
    # 4
    if told := [pair for one in worked for pair in one.told]:
        transaction.on_commit(partial(hint, tenant, told), robust=True)
    for one, settlement in zip(worked, settlements, strict=True):
        one.result.unchanged = len(settlement.wanted) - one.result.new - one.result.revised
    return {one.customer_id: done.result for one, done in zip(settlements, worked, strict=True)}


def _of_customer(
    tenant: str, found: Findings, rule_ids: Collection[str] | None, beside: Callable[[], object] | None
) -> Settlement:
    """Errors: ValueError, as `settle_customer`."""
    wanted: dict[tuple[str, str], Hit] = {}
    for hit in found.hits:
        key = (hit.rule_id, hit.evidence_key)
        strange = hit.customer_id != found.customer_id or (rule_ids is not None and hit.rule_id not in rule_ids)
        if strange or key in wanted:
            raise ValueError(f"hit {hit.rule_id} {hit.evidence_key} does not belong in this settlement")
        wanted[key] = hit
    return Settlement(
        tenant=tenant,
        about={"customer_id": found.customer_id},
        own=lambda row: (
            row.rule_id not in ADVISOR_RULES
            and (rule_ids is None or row.rule_id in rule_ids or overtaken(row, found.final_trades))
        ),
        wanted=wanted,
        final_trades=found.final_trades,
        trace_id=found.trace_id,
        beside=beside,
        customer_id=found.customer_id,
    )


def live_hits_of(*, tenant: str, customer_ids: Collection[str]) -> dict[str, list[RiskAlertHit]]:
    """What `settle_customer` compares with, of many customers, by id. One query."""
    found: dict[str, list[RiskAlertHit]] = defaultdict(list)
    for row in RiskAlertHit.objects.filter(tenant=tenant, customer_id__in=customer_ids, state=HitState.LIVE):
        found[row.customer_id].append(row)
    return found


def settle_advisor(
    *,
    tenant: str,
    advisor_id: str,
    since: datetime,
    until: datetime,
    hits: Sequence[Hit],
    final_trades: Mapping[str, FinalTrade],
    stays: Callable[[RiskAlertHit], bool] = lambda row: False,
    trace_id: str = "",
) -> SettleResult:
    """As `settle_customer`, for an advisor's conduct and reported trades that the core lacks, in `[since, until)`.

    The bounds are those of whole business days: a day's finding may move within its day.
    stays: asked of a stored finding that is not among `hits`: whether nobody can tell any more that it is not true.
    Errors: ValueError for hits of another advisor, of a customer's rule, outside the bounds, or twice for one key.
    """
    rule_ids = {DATA_QUALITY, *ADVISOR_RULES}
    wanted: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = (hit.rule_id, hit.evidence_key)
        own = hit.advisor_id == advisor_id and not hit.customer_id and hit.rule_id in rule_ids
        if not own or not since <= hit.occurred_at < until or key in wanted:
            raise ValueError(f"hit {hit.rule_id} {hit.evidence_key} does not belong in this settlement")
        wanted[key] = hit
    rows = RiskAlertHit.objects.filter(tenant=tenant, advisor_id=advisor_id, rule_id__in=rule_ids, customer_id="")
    rows = rows.filter(occurred_at__gte=since, occurred_at__lt=until, state=HitState.LIVE)
    live = list(rows)
    settlement = Settlement(
        tenant=tenant,
        about={"advisor_id": advisor_id, "customer_id": ""},
        own=lambda row: (
            row.rule_id in rule_ids
            and since <= row.occurred_at < until
            and ((row.rule_id, row.evidence_key) in wanted or not stays(row))
        ),
        wanted=wanted,
        final_trades=final_trades,
        trace_id=trace_id or current_trace_id(),
    )
    if not settlement.changes(live):
        return SettleResult(unchanged=len(wanted))
    # Not all that was ever found about the advisor: these days', and whatever else stands in open alerts.
    these_days = Q(occurred_at__gte=since, occurred_at__lt=until)
    return settlement.run(live=Q(state=HitState.LIVE) & (these_days | Q(alert__status__in=OPEN)))[0]
