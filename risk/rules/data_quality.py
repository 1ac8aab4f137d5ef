"""Facts that are missing: a row for operators, never published, never scored.

"Missing customer, product, price or rate": one finding a trade, holding all that it lacks. It goes away by itself
when the fact is mended: the next evaluation judges the trade and no longer finds it. A trade that only limits in
dollars cannot be held against (no currency, no fx_usd) is a finding too; all other rules judge it.
A trade with a value that `import_core` would refuse is one as well, and names the columns: only a core of the firm's
own has such.
"""

from __future__ import annotations

from typing import Any

from risk.rules.facts import Facts, Fault
from risk.rules.flows import unrated
from risk.rules.hit import DATA_QUALITY, Hit


def evaluate(facts: Facts) -> list[Hit]:
    """One finding for each live trade that cannot be judged, in order of trades; then those without dollars."""
    return [
        Hit(
            rule_id=DATA_QUALITY,
            rule_version=1,
            evidence_key=f"{fault.fact.trade_id}@{fault.fact.version}",
            customer_id=fault.fact.customer_id,
            trade_id=fault.fact.trade_id,
            trade_version=fault.fact.version,
            occurred_at=fault.fact.traded_at,
            score=0,
            subtypes=fault.missing,
            figures={"missing": list(fault.missing), "trade_type": fault.fact.trade_type, **figures},
            advisor_id=fault.fact.advisor_id,
            product_id=fault.fact.product_id,
        )
        for fault, figures in [*((fault, _unread(fault)) for fault in facts.faults), *_limits_only(facts)]
    ]


def _unread(fault: Fault) -> dict[str, Any]:
    return {"unreadable": list(fault.unreadable)} if fault.unreadable else {}


def _limits_only(facts: Facts) -> list[tuple[Fault, dict[str, Any]]]:
    return [(fault, {"limits_only": True}) for fault in unrated(facts)]
