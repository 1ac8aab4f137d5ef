"""Evaluates one customer completely. A bulk scan is this, customer by customer, so the two agree by construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.core.facts import CustomerRows
from risk.rules import data_quality, risk_001, risk_002, risk_003, risk_004, risk_005, risk_006, risk_007, risk_008
from risk.rules.facts import Facts
from risk.rules.hit import FinalTrade, Hit
from risk.rules.params import build


@dataclass(frozen=True)
class Rule:
    """A rule in force: its file's `evaluate`, with the parameters and version of a tenant."""

    rule_id: str
    evaluate: Callable[[Any, Any, int], list[Hit]]  # of Facts, or of an advisor's Conduct
    params: Any
    version: int = 1


# A new rule is a file beside these and a line here.
MODULES: dict[str, Any] = {
    module.RULE_ID: module for module in (risk_001, risk_002, risk_003, risk_004, risk_005, risk_006, risk_007)
}

# Rules over an advisor's conduct and not a customer's trades: scanned by risk.conduct.
ADVISOR_MODULES: dict[str, Any] = {risk_008.RULE_ID: risk_008}


def default_rules() -> list[Rule]:
    """Every rule with the figures of its own file."""
    return [Rule(rule_id, module.evaluate, module.Params()) for rule_id, module in MODULES.items()]


def rule_with(rule_id: str, params: dict[str, Any], version: int) -> Rule:
    """A rule with some parameters replaced. Errors: INVALID_REQUEST for a parameter that it does not have."""
    module = (MODULES | ADVISOR_MODULES)[rule_id]
    return Rule(rule_id, module.evaluate, build(module.Params, params), version)


@dataclass(frozen=True)
class Evaluation:
    """What the rules find about one customer, and the final state of every trade that was ever the customer's."""

    customer_id: str
    hits: tuple[Hit, ...]
    final_trades: Mapping[str, FinalTrade]


def evaluate(rows: CustomerRows, rules: Sequence[Rule]) -> Evaluation:
    """Every rule over every trade of the customer, and what its trades lack. Pure: no clock, no database.

    The order of the rows does not matter. Hits are in order of their trades, then of the rules.
    """
    facts = Facts(rows)
    hits = [hit for rule in rules for hit in rule.evaluate(facts, rule.params, rule.version)]
    hits.extend(data_quality.evaluate(facts))
    hits.sort(key=lambda hit: (hit.occurred_at, hit.trade_id))
    return Evaluation(rows.customer_id, tuple(hits), facts.final_trades)
