"""Scans: evaluate the customers whose facts changed, and hand the findings to the alerts.

How one batch goes (many scanners may run at once; each customer is with one of them at a time):
1. Claim: mark the `core_change` rows of up to CHUNK waiting customers as ours for CLAIM_SECONDS. Claims of another
   scanner that appeared meanwhile win: ours on that customer is given back.
2. Read the rules, all their facts and their live hits (eight queries), after the claim: whatever is committed later
   has a row that is not ours, an activated version too.
3. Evaluate each customer, without a lock or a transaction, and settle those of whom something changed together:
   risk.alerts keeps what is new, supersedes what has other figures, withdraws what is gone.
4. Delete exactly the rows claimed, once for the chunk. If some are gone or another's, we were too slow and somebody
   newer has been here: the customers are marked again, so that the last word is never an old one.
A chunk of unchanged customers costs 14 queries, however many they are; those with something new are written together,
an INSERT a table for up to 200 changes.
A customer whose evaluation fails keeps its rows (claimed until they expire, so that it is tried again, later) and
stops nobody else.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import OperationalError, connection, transaction
from django.db.models import Q

from config.base.clock import now
from config.base.collecting import without_collecting
from config.base.db import is_lock_conflict, retry_conflicts
from config.base.ids import check_id, new_id
from config.base.trace import traced
from guard.audit.models import Decision, EventType
from guard.audit.services import observe
from memory.core.importer import mark
from memory.core.marking import to_be_looked_at
from memory.core.models import CoreChange
from memory.core.selectors import customers_facts, known_customer_ids, known_tenants
from risk.alerts.services import Findings, SettleResult, live_hits_of, settle_customers
from risk.rules.engine import MODULES, Evaluation, Rule, evaluate
from risk.rules.hit import DATA_QUALITY
from risk.rules.ruling import Ruling, ruling
from risk.rules.shadow import shadow_customer

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 50  # customers claimed and read at once
TRADES_AT_ONCE = 20_000  # read at once, as far as the chunk before tells: long histories go in smaller chunks
CLAIM_SECONDS = 30  # renewed while the scanner lives; a dead one's customers wait so long
LOCK_SECONDS = 20.0  # after which no lock is asked for again; an activation marks everybody in one transaction
TICK_CUSTOMERS = 2000  # the most that one tick of the beat takes on


@dataclass
class ScanReport:
    """What a scan did. failed: customers whose evaluation raised; they are tried again. hits: live after it.
    left: customers that another scanner still had when our patience ended. died: processes of a scan side by side that
    came to no end of their own."""

    customers: int = 0
    hits: int = 0
    data_quality: int = 0
    failed: list[str] = field(default_factory=list)
    left: int = 0
    died: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "customers": self.customers,
            "hits": self.hits,
            "data_quality": self.data_quality,
            "failed": sorted(self.failed),
            "left": self.left,
            **({"died": self.died} if self.died else {}),
        }


def active_rules(*, tenant: str, modules: Mapping[str, Any] = MODULES) -> list[Rule]:
    """The rules of `modules` in force in a tenant, as `ruling` says. One query."""
    return ruling(tenant=tenant, modules=modules).active


def scan(
    *,
    tenant: str | None = None,
    customers: Iterable[str] | None = None,
    everything: bool = False,
    limit: int | None = None,
    patience: float = 0.0,
    audited: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ScanReport:
    """Evaluates what `core_change` holds, and settles it.

    tenant: only this one (default: all). customers: just these, marked or not (needs a tenant). everything: mark
    every customer first. limit: at most so many customers. patience: seconds to wait for customers that another
    scanner has just now. audited: one `rule_scan` row a tenant that had work.
    Errors: INVALID_ID for a customer or tenant; those of one customer's evaluation are counted, not raised.
    """
    wanted = None if customers is None else sorted({check_id("customer", name) for name in customers})
    if tenant is not None:
        check_id("tenant", tenant)
    elif wanted is not None:
        raise ValueError("customers belong to a tenant; name it")
    if everything:
        mark_everybody(tenant=tenant)
    elif wanted is not None and tenant is not None:
        _patiently(lambda: mark(tenant=tenant, customer_ids=wanted))
    by_tenant: dict[str, ScanReport] = defaultdict(ScanReport)
    total = ScanReport()
    tokens: list[str] = []
    deadline = time.monotonic() + patience
    size = CHUNK
    while limit is None or total.customers + len(total.failed) < limit:
        claim = _claim_if_free(tenant, wanted, size if limit is None else min(size, limit - total.customers))
        if claim is None:
            if not patience:
                break
            total.left = _held_by_others(tenant, wanted, tokens)
            if not total.left or time.monotonic() > deadline:
                break
            time.sleep(0.1)
            continue
        tokens.append(claim.token)
        for name, ids in claim.customers.items():
            with without_collecting():
                trades = _scan_chunk(name, ids, claim, ruling(tenant=name), by_tenant[name], progress)
            size = max(1, min(CHUNK, TRADES_AT_ONCE * len(ids) // max(trades, 1)))
        total = together(by_tenant.values())
    if audited:
        for name, report in by_tenant.items():
            _audit(name, report)
    return total


def mark_everybody(*, tenant: str | None = None) -> None:
    """Every customer of the tenant (default: of all) is to be evaluated again, after those whose facts changed."""
    for name in [tenant] if tenant is not None else known_tenants():
        ids = known_customer_ids(tenant=name)
        _patiently(lambda: mark(tenant=name, customer_ids=ids, priority=1))  # noqa: B023 - runs at once


def together(reports: Iterable[ScanReport]) -> ScanReport:
    """The sum of several reports; what the last of them had to leave is left."""
    total = ScanReport()
    for report in reports:
        total.customers += report.customers
        total.hits += report.hits
        total.data_quality += report.data_quality
        total.failed.extend(report.failed)
        total.died += report.died
        total.left = report.left
    return total


def _audit(tenant: str, report: ScanReport) -> None:
    if not report.failed:
        decision = Decision.COMPLETED
    else:
        decision = Decision.PARTIAL if report.customers else Decision.FAILED
    observe(
        tenant=tenant,
        event_type=EventType.RULE_SCAN,
        decision=decision,
        actor_id="scan_trades",
        object_type="risk_rule",
        input_summary={
            "customers": report.customers,
            "hits": report.hits,
            "data_quality": report.data_quality,
            "failed": len(report.failed),
        },
    )


# --- one chunk --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Claim:
    """What a scanner has taken: its token, and the row ids by tenant and customer."""

    token: str
    rows: dict[tuple[str, str], list[int]]

    @property
    def customers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for tenant, customer_id in self.rows:
            found[tenant].append(customer_id)
        return found


def _asked_for(tenant: str | None, wanted: Sequence[str] | None) -> Any:
    rows = CoreChange.objects.all() if tenant is None else CoreChange.objects.filter(tenant=tenant)
    return rows if wanted is None else rows.filter(customer_id__in=wanted)


def _held_by_others(tenant: str | None, wanted: Sequence[str] | None, tokens: Sequence[str]) -> int:
    rows = _asked_for(tenant, wanted).exclude(claim__in=tokens)
    return rows.values("tenant", "customer_id").distinct().count()


def _patiently(work: Callable[[], T]) -> T:
    """`work`, one statement or transaction, again where another transaction has its rows. Errors: as
    `retry_conflicts`."""
    return retry_conflicts(work, longest=LOCK_SECONDS)


def _claim_if_free(tenant: str | None, wanted: Sequence[str] | None, size: int) -> _Claim | None:
    """`_claim`; None also where another transaction has held the rows for longer than LOCK_SECONDS: they wait."""
    try:
        return _claim(tenant, wanted, size)
    except OperationalError as error:
        if not is_lock_conflict(error) or connection.in_atomic_block:
            raise
        logger.warning("no customers could be claimed: another transaction holds their rows")
        return None


def _claim(tenant: str | None, wanted: Sequence[str] | None, size: int) -> _Claim | None:
    """Step 1. None when nothing waits: one query."""
    passed: set[tuple[str, str]] = set()
    while True:
        waiting = _asked_for(tenant, wanted).filter(Q(claimed_until=None) | Q(claimed_until__lt=now()))
        for name in passed:
            waiting = waiting.exclude(tenant=name[0], customer_id=name[1])
        # The head of the index, not a GROUP BY over everything: a full scan has a row for each customer there is.
        head = waiting.order_by("priority", "id").values_list("tenant", "customer_id")[: 4 * size]
        names = list(dict.fromkeys(head))[:size]
        if not names:
            return None
        claim = _take(names)
        if claim.rows:
            return claim
        passed.update(names)  # every one of them is with another scanner


def _take(names: Sequence[tuple[str, str]]) -> _Claim:
    token, moment = new_id(), now()
    until = moment + timedelta(seconds=CLAIM_SECONDS)
    by_tenant: dict[str, list[str]] = defaultdict(list)
    for tenant, customer_id in names:
        by_tenant[tenant].append(customer_id)
    rows: dict[tuple[str, str], list[int]] = {}
    for tenant, ids in by_tenant.items():
        all_rows = CoreChange.objects.filter(tenant=tenant, customer_id__in=ids)
        free = all_rows.filter(Q(claimed_until=None) | Q(claimed_until__lt=moment))
        _patiently(partial(free.update, claim=token, claimed_until=until))
        taken: dict[str, list[int]] = defaultdict(list)
        foreign: set[str] = set()
        for row_id, customer_id, holder, held_until in all_rows.values_list(
            "id", "customer_id", "claim", "claimed_until"
        ):
            if holder == token:
                taken[customer_id].append(row_id)
            elif holder is not None and held_until is not None and held_until >= moment:
                foreign.add(customer_id)
        if foreign:
            ours = CoreChange.objects.filter(tenant=tenant, customer_id__in=foreign, claim=token)
            _patiently(partial(ours.update, claim=None, claimed_until=None))
        # As they were asked for: changes before re-scans, the oldest first.
        rows.update(
            {(tenant, name): taken[name] for name in ids if name in taken and name not in foreign},
        )
    return _Claim(token, rows)


def _scan_chunk(
    tenant: str,
    ids: Sequence[str],
    claim: _Claim,
    ruled: Ruling,
    report: ScanReport,
    progress: Callable[[int], None] | None,
) -> int:
    """Steps 2 to 4; how many trades there were."""
    facts = customers_facts(tenant=tenant, customer_ids=ids)
    live = live_hits_of(tenant=tenant, customer_ids=ids)
    rule_ids = {DATA_QUALITY, *(rule.rule_id for rule in ruled.active)}
    renewed = time.monotonic()

    def alive() -> None:
        nonlocal renewed
        if time.monotonic() - renewed > CLAIM_SECONDS / 3:
            _renew(claim)
            renewed = time.monotonic()

    evaluated: dict[str, Evaluation] = {}
    findings: list[Findings] = []
    for customer_id in ids:
        alive()
        try:
            # A trace id for each customer's evaluation: it tells one customer's alerts and audit rows from another's.
            with traced() as trace_id:
                found = evaluated[customer_id] = evaluate(facts[customer_id], ruled.active)
        except Exception:
            logger.exception("the evaluation of one customer failed")
            continue
        of_customer = live.get(customer_id, [])
        findings.append(Findings(customer_id, found.hits, found.final_trades, trace_id, of_customer))
    # One who vanishes from a core of the firm's own before a round has seen them must not keep what is found here.
    to_be_looked_at(tenant, [each.customer_id for each in findings if each.hits])
    settled = settle_customers(tenant=tenant, findings=findings, rule_ids=rule_ids, alive=alive, longest=LOCK_SECONDS)
    done: list[str] = []
    for customer_id in ids:
        if isinstance(settled.get(customer_id), SettleResult):
            found = evaluated[customer_id]
            shadow_customer(tenant=tenant, facts=facts[customer_id], shadows=ruled.shadows, active=found.hits)
            alive()
            done.append(customer_id)
            report.customers += 1
            quality = sum(1 for hit in found.hits if hit.rule_id == DATA_QUALITY)
            report.data_quality += quality
            report.hits += len(found.hits) - quality
        else:
            report.failed.append(customer_id)
        if progress:
            progress(1)
    _release(tenant, done, claim)
    return sum(len(rows.trades) for rows in facts.values())


def _renew(claim: _Claim) -> None:
    """Rows that somebody else has taken over meanwhile stay theirs: `_release` finds that out."""
    row_ids = [row_id for found in claim.rows.values() for row_id in found]
    ours = CoreChange.objects.filter(id__in=row_ids, claim=claim.token)
    try:
        _patiently(lambda: ours.update(claimed_until=now() + timedelta(seconds=CLAIM_SECONDS)))
    except OperationalError as error:
        # Whoever takes them over meanwhile judges them anew, and `_release` finds that out.
        if not is_lock_conflict(error) or connection.in_atomic_block:
            raise
        logger.warning("a claim could not be renewed: another transaction holds its rows")


def _release(tenant: str, customer_ids: Sequence[str], claim: _Claim) -> None:
    """Step 4."""
    row_ids = [row_id for customer_id in customer_ids for row_id in claim.rows[(tenant, customer_id)]]
    if not row_ids:
        return

    def work() -> None:
        with transaction.atomic():
            deleted, _kinds = CoreChange.objects.filter(id__in=row_ids, claim=claim.token).delete()
            if deleted < len(row_ids):
                mark(tenant=tenant, customer_ids=customer_ids)

    try:
        _patiently(work)
    except OperationalError as error:
        if not is_lock_conflict(error) or connection.in_atomic_block:
            raise
        # What was found is settled. The rows stay claimed until that ends; then they are judged again, which changes
        # nothing.
        logger.warning("a claim could not be given back: another transaction holds its rows")
