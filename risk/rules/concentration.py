"""The limits of RISK-002 as a tenant has them in force, for whoever shows concentration without a trade."""

from __future__ import annotations

from memory.profiles.snapshots.limits import ConcentrationLimits
from risk.rules import risk_002
from risk.rules.services import active_rules


def concentration_limits(tenant: str) -> ConcentrationLimits | None:
    """None where the rule is off. One query."""
    rule = next((rule for rule in active_rules(tenant=tenant) if rule.rule_id == risk_002.RULE_ID), None)
    if rule is None:
        return None
    params: risk_002.Params = rule.params
    return ConcentrationLimits(
        min_assets=params.min_assets,
        of=lambda product: risk_002.limits_of(product, params),
        rule=f"{rule.rule_id}@{rule.version}",
    )
