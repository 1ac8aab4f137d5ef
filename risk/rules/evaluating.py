"""One trade evaluated now: the scan of its customer, without waiting for the scanner.

The code is the scan's (`engine.evaluate`, `settle_customer`), so what it finds is what the scanner finds. It takes no
claim and waits for nobody. Where it changed something it marks the customer in the same transaction: facts may have
changed since they were read, and a scanner that may read them later has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.trace import current_trace_id
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from memory.core.around import facts_around
from memory.core.importer import mark
from risk.alerts.models import RiskAlertHit
from risk.alerts.services import SettleResult, settle_customer
from risk.rules.engine import evaluate
from risk.rules.hit import DATA_QUALITY
from risk.rules.ruling import ruling
from risk.rules.shadow import shadow_customer


@dataclass(frozen=True)
class Evaluated:
    """customers: those evaluated, whom some version of the trade names. hits: what is live of this trade, of every
    rule; data_quality: what it lacks. changed: what the evaluation did, in counts, for all trades of theirs."""

    trade_id: str
    version: int
    status: str
    customers: Sequence[str]
    hits: Sequence[RiskAlertHit]
    data_quality: Sequence[RiskAlertHit]
    changed: SettleResult
    trace_id: str


def may_evaluate(caller: Caller) -> None:
    """Errors: AUTH_403_SCOPE (403, one audit row): the risk agent alone, for the answer tells of RISK-003 and 004."""
    authorize(caller, Resource.ALERT, "write")


def evaluate_trade(*, tenant: str, trade_id: str) -> Evaluated:
    """Evaluates the trade with all that it bears on, and settles it. Repeating it changes nothing.

    Cost: 4 queries (the customer's trades, their other facts, the rules, their hits) where nothing is new. A finding
    that opens an alert: 5 INSERTs more (alert, hit, audit, event, mark), 1 query for the holidays, and up to 2 for the
    pseudonym of a customer whom this process has not met: 12, and 1 more where the alert has a level. One that joins
    an alert: the lock, 1 UPDATE and 4 INSERTs. BEGIN and COMMIT, or a savepoint, are not counted: with them the
    opening of a new customer's alert is 16.
    Errors: TRADE_NOT_FOUND, INVALID_ID, CORE_UNAVAILABLE.
    """
    check_id("trade_id", trade_id)
    facts = facts_around(tenant=tenant, trade_id=trade_id)
    if not facts:
        raise DomainError("TRADE_NOT_FOUND", f"the core system has no trade {trade_id!r} in this tenant")
    ruled = ruling(tenant=tenant)
    changed, standing = SettleResult(), list[RiskAlertHit]()
    version, status = 0, ""
    for customer_id, rows in facts.items():
        found = evaluate(rows, ruled.active)
        final = found.final_trades[trade_id]
        version, status = final.version, final.status
        result, live = settle_customer(
            tenant=tenant,
            customer_id=customer_id,
            hits=list(found.hits),
            final_trades=found.final_trades,
            trace_id=current_trace_id(),
            rule_ids={DATA_QUALITY, *(rule.rule_id for rule in ruled.active)},
            beside=partial(mark, tenant=tenant, customer_ids=[customer_id]),
        )
        shadow_customer(tenant=tenant, facts=rows, shadows=ruled.shadows, active=found.hits)
        changed += result
        standing += [row for row in live if row.trade_id == trade_id]
    standing.sort(key=lambda row: (row.rule_id, row.evidence_key))
    return Evaluated(
        trade_id=trade_id,
        version=version,
        status=status,
        customers=list(facts),
        hits=[row for row in standing if row.rule_id != DATA_QUALITY],
        data_quality=[row for row in standing if row.rule_id == DATA_QUALITY],
        changed=changed,
        trace_id=current_trace_id(),
    )
