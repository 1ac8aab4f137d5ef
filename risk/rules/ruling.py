"""Which rules a tenant has in force and in shadow, and with which figures."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from config.base.errors import DomainError
from risk.rules import risk_003, risk_004
from risk.rules.engine import ADVISOR_MODULES, MODULES, Rule, rule_with
from risk.rules.flows import Limits
from risk.rules.models import RiskRule, RuleStatus

logger = logging.getLogger(__name__)

ALL_MODULES: dict[str, Any] = MODULES | ADVISOR_MODULES

# "Just under the limit" is just under the limit from which RISK-003 reports: RISK-004 has no limits of its own.
LIMITS = frozenset(field.name for field in fields(Limits))
TAKEN_FROM: dict[str, tuple[str, frozenset[str]]] = {risk_004.RULE_ID: (risk_003.RULE_ID, LIMITS)}


@dataclass(frozen=True)
class Shadow:
    """A version in shadow. pk: of its `risk_rule` row. rules: the rule with its figures, and those in force that would
    take figures from it."""

    pk: int
    rule_id: str
    version: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Ruling:
    """What a tenant has: the rules in force, and the versions in shadow."""

    active: list[Rule]
    shadows: list[Shadow]


def ruling(*, tenant: str, modules: Mapping[str, Any] = MODULES) -> Ruling:
    """The rules of `modules` in force in a tenant, and their versions in shadow. One query.

    In force is the active version; where the tenant has never activated one, the figures of the rule's file are
    version 1. Off is a rule whose active version says so, or whose versions were all retired. Refused, and left out, is
    one whose stored figures cannot be read or cannot be (or another's that it takes figures from): it is not judged by
    figures that nobody has put into force, the others go on, and the log and `damaged_versions` tell.
    A scanner reads this after its claim: who activates a version marks everybody in the same transaction, so what is
    judged by the older one is judged again.
    """
    by_rule, figures, active = _read(tenant, modules)
    shadows = []
    for rule_id in modules:
        for row in by_rule[rule_id]:
            if row.status == RuleStatus.SHADOW and row.is_on:
                try:
                    shadows.append(Shadow(row.pk, rule_id, row.version, trial(row, active.values(), figures)))
                except DomainError as error:
                    # A row that nobody's hand but a database client's can have written: no reason to stop the rules.
                    _refused(tenant, rule_id, row.version, error)
    return Ruling(list(active.values()), shadows)


def rules_on_trial(*, row: RiskRule) -> tuple[Rule, ...]:
    """What would be judged with a version in force: the rule (none if it is off), and those that take figures from it.

    row: need not be stored. One query. Errors: as `trial`.
    """
    _by_rule, figures, active = _read(row.tenant, ALL_MODULES)
    return trial(row, active.values(), figures)


def takers_of(rule_id: str) -> set[str]:
    """The rules that take figures from this one."""
    return {taker for taker, (source, _names) in TAKEN_FROM.items() if source == rule_id}


_Rows = dict[str, list[RiskRule]]


def _read(tenant: str, modules: Mapping[str, Any]) -> tuple[_Rows, dict[str, Any], dict[str, Rule]]:
    """Versions that count, in order, by rule; the figures of each rule as stored; the rules in force."""
    needed = set(modules) | {source for rule_id, (source, _names) in TAKEN_FROM.items() if rule_id in modules}
    settled = (RuleStatus.ACTIVE, RuleStatus.SHADOW, RuleStatus.RETIRED)
    by_rule: _Rows = defaultdict(list)
    for row in RiskRule.objects.filter(tenant=tenant, status__in=settled).order_by("version"):
        if row.rule_id in needed:
            by_rule[row.rule_id].append(row)
    figures = {rule_id: _last_figures(by_rule[rule_id]) for rule_id in needed}
    active = {}
    for rule_id in modules:
        version = _version_in_force(by_rule[rule_id])
        if version is not None:
            try:
                active[rule_id] = with_taken(rule_with(rule_id, own(rule_id, figures[rule_id]), version), figures)
            except DomainError as error:
                _refused(tenant, rule_id, version, error)
    return by_rule, figures, active


def trial(row: RiskRule, active: Any, figures: Mapping[str, Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rule with a version's figures, and the rules in force as they would then be.

    active: the rules in force. figures: by rule, as stored. Errors: INVALID_REQUEST for figures that cannot be.
    """
    trialled = {**figures, row.rule_id: row.params}
    rules = [with_taken(rule_with(row.rule_id, own(row.rule_id, row.params), row.version), trialled)]
    rules.extend(with_taken(rule, trialled) for rule in active if rule.rule_id in takers_of(row.rule_id))
    return tuple(rules) if row.is_on else tuple(rules[1:])


def own(rule_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that are the rule's to have. Errors: INVALID_REQUEST for what is no object."""
    if not isinstance(params, Mapping):
        raise DomainError("INVALID_REQUEST", f"the figures of {rule_id} are no JSON object", fields={})
    _source, taken = TAKEN_FROM.get(rule_id, ("", frozenset()))
    return {name: value for name, value in params.items() if name not in taken}


def with_taken(rule: Rule, figures: Mapping[str, Mapping[str, Any]]) -> Rule:
    """The rule with what it takes from another's figures, by rule as stored."""
    source, names = TAKEN_FROM.get(rule.rule_id, ("", frozenset()))
    if not source:
        return rule
    given = rule_with(source, own(source, figures.get(source, {})), 1).params
    return replace(rule, params=replace(rule.params, **{name: getattr(given, name) for name in names}))


def _version_in_force(rows: Sequence[RiskRule]) -> int | None:
    """None: the rule is off."""
    active = [row for row in rows if row.status == RuleStatus.ACTIVE]
    if active:
        return active[-1].version if active[-1].is_on else None
    return None if any(row.status == RuleStatus.RETIRED for row in rows) else 1


def _last_figures(rows: Sequence[RiskRule]) -> Any:
    """Of the version in force, or of the last that was: limits that others take are there while the rule is off."""
    held = [row for row in rows if row.status in (RuleStatus.ACTIVE, RuleStatus.RETIRED)]
    held.sort(key=lambda row: (row.status == RuleStatus.ACTIVE, row.version))
    return held[-1].params if held else {}


# --- damage -----------------------------------------------------------------------------------------------------------

_TOLD_AGAIN = 60.0  # seconds: a scan meets the same row with every chunk
_told: dict[tuple[str, str, int], float] = {}


def _refused(tenant: str, rule_id: str, version: int, error: DomainError) -> None:
    key, moment = (tenant, rule_id, version), time.monotonic()
    if key not in _told or moment - _told[key] > _TOLD_AGAIN:
        _told[key] = moment
        logger.error("version %s of %s cannot be evaluated and is left out: %s", version, rule_id, error.detail)


@dataclass(frozen=True)
class Damaged:
    """A version that counts and whose figures cannot be read, or cannot be."""

    tenant: str
    rule_id: str
    version: int
    status: str


def damaged_versions() -> list[Damaged]:
    """Of all tenants. In force, in shadow, or last in force where another rule takes figures. One query."""
    settled = (RuleStatus.ACTIVE, RuleStatus.SHADOW, RuleStatus.RETIRED)
    by_rule: dict[tuple[str, str], list[RiskRule]] = defaultdict(list)
    for row in RiskRule.objects.filter(status__in=settled).order_by("version"):
        if row.rule_id in ALL_MODULES:
            by_rule[row.tenant, row.rule_id].append(row)
    found = []
    for (tenant, rule_id), rows in sorted(by_rule.items()):
        counts = [row for row in rows if row.status != RuleStatus.RETIRED]
        if takers_of(rule_id) and all(row.status != RuleStatus.ACTIVE for row in counts):
            counts += [row for row in rows if row.status == RuleStatus.RETIRED][-1:]
        for row in counts:
            try:
                rule_with(rule_id, own(rule_id, row.params), row.version)
            except DomainError:
                found.append(Damaged(tenant, rule_id, row.version, row.status))
    return found
