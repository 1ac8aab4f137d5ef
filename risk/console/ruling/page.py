"""What the pages of rules show: figures with their units and differences, trials in shadow, backtests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Max, Min
from django.utils.translation import gettext as _

from guard.access.roles import may
from memory.core.models import CoreChange
from risk.conduct.models import ConductChange
from risk.console.words import RULES
from risk.rules.engine import ADVISOR_MODULES
from risk.rules.figures import DECIMALS, FIGURES
from risk.rules.models import Backtest, RiskRule, RuleStatus, ShadowHit, ShadowSide, ShadowState
from risk.rules.params import figures_of
from risk.rules.ruling import ALL_MODULES, TAKEN_FROM
from risk.rules.versions import ACTIVATE, CHANGE, InForce, complete, in_force_of, is_own, readable

SAMPLED = 10  # hits in shadow that the page lists, of each side


@dataclass(frozen=True)
class Line:
    """One figure. default: of the rule's file. now: in force. value: of this version, or as somebody typed it."""

    name: str
    label: str
    unit: str
    low: str
    high: str
    whole: bool
    default: str
    now: str
    value: str
    error: str = ""

    @property
    def differs(self) -> bool:
        return self.value != self.now


def lines_of(
    rule_id: str, figures: Mapping[str, Any], now: InForce, errors: Mapping[str, str] | None = None
) -> list[Line]:
    """The figures that are the rule's own, in the order of its file."""
    defaults = figures_of(ALL_MODULES[rule_id].Params())
    _source, taken = TAKEN_FROM.get(rule_id, ("", frozenset()))
    return [
        Line(
            name,
            str(figure.label),
            str(figure.unit.words),
            f"{figure.unit.low:f}",
            f"{figure.unit.high:f}",
            isinstance(defaults[name], int),
            str(defaults[name]),
            str(now.figures.get(name, "")),
            str(figures.get(name, "")),
            (errors or {}).get(name, ""),
        )
        for name, figure in FIGURES[rule_id].items()
        if name not in taken
    ]


def error_words(rule_id: str, fields: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with each field, for people."""
    defaults = figures_of(ALL_MODULES[rule_id].Params())
    found = {}
    for name, why in fields.items():
        figure = FIGURES[rule_id].get(name)
        if name == "reason":
            found[name] = _("Say why, in 10 to 500 characters.")
        elif name == "last" and "before" in why:
            found[name] = _("The last day lies before the first.")
        elif name in ("first", "last"):
            found[name] = _("This is no day between 1970 and 9998.")
        elif figure is None or name not in defaults:
            found[name] = _("The rule has no such figure.")
        elif "cannot be" in why and ("not above" in why or "lies below" in why):
            found[name] = _("It contradicts another figure of the rule.")
        else:
            values = {"low": f"{figure.unit.low:f}", "high": f"{figure.unit.high:f}", "places": DECIMALS}
            whole = isinstance(defaults[name], int)
            words = (
                _("A whole number from %(low)s to %(high)s.")
                if whole
                else _("A number from %(low)s to %(high)s, with at most %(places)s decimals.")
            )
            found[name] = words % values
    return found


# --- all rules ----------------------------------------------------------------------------------------------------


@dataclass
class Summary:
    """One rule on the list. waiting: its drafts and shadows."""

    rule_id: str
    name: str
    now: InForce
    changed: int = 0
    row: RiskRule | None = None
    waiting: list[RiskRule] = field(default_factory=list)


def summaries(tenant: str) -> list[Summary]:
    """Every rule, with what is in force and what waits. One query."""
    by_rule: dict[str, list[RiskRule]] = {rule_id: [] for rule_id in ALL_MODULES}
    rows = RiskRule.objects.filter(tenant=tenant, rule_id__in=by_rule).exclude(status=RuleStatus.DROPPED)
    for row in rows.select_related("activated_by").order_by("version"):
        by_rule[row.rule_id].append(row)
    found = []
    for rule_id, versions in by_rule.items():
        now = in_force_of(versions, rule_id)
        defaults = complete(rule_id, {})
        found.append(
            Summary(
                rule_id,
                str(RULES.get(rule_id, rule_id)),
                now,
                sum(1 for name, value in now.figures.items() if value != defaults[name]),
                next((row for row in versions if row.status == RuleStatus.ACTIVE), None),
                [row for row in versions if row.status in (RuleStatus.DRAFT, RuleStatus.SHADOW)],
            )
        )
    return found


# --- one version --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class May:
    """What the page offers; each is asked again where it is done."""

    change: bool
    activate: bool
    backtest: bool


def rights(person: User) -> May:
    change, activate = may(person, CHANGE), may(person, ACTIVATE)
    return May(change, activate, change or activate)


@dataclass
class Trial:
    """A version in shadow, so far. first, last: of the trades of what it says. waiting: customers (for RISK-008:
    advisors) not judged yet."""

    both: int = 0
    only_shadow: int = 0
    only_active: int = 0
    first: Any = None
    last: Any = None
    waiting: int = 0
    more: list[ShadowHit] = field(default_factory=list)
    fewer: list[ShadowHit] = field(default_factory=list)

    @property
    def would_be(self) -> int:
        return self.both + self.only_shadow


def trial_of(row: RiskRule) -> Trial | None:
    """None for a version that never was in shadow. Four queries."""
    if row.shadowed_at is None:
        return None
    live = ShadowHit.objects.filter(rule=row, state=ShadowState.LIVE)
    found = Trial()
    counted = live.order_by().values_list("side").annotate(Count("pk"), Min("occurred_at"), Max("occurred_at"))
    for side, count, first, last in counted:
        name = {ShadowSide.BOTH: "both", ShadowSide.SHADOW: "only_shadow", ShadowSide.ACTIVE: "only_active"}[side]
        setattr(found, name, count)
        found.first = min(filter(None, (found.first, first)))
        found.last = max(filter(None, (found.last, last)))
    if row.status == RuleStatus.SHADOW:
        found.waiting = waiting(row)
    samples = live.defer("figures").order_by("-occurred_at", "id")
    found.more = list(samples.filter(side=ShadowSide.SHADOW)[:SAMPLED])
    found.fewer = list(samples.filter(side=ShadowSide.ACTIVE)[:SAMPLED])
    return found


def waiting(row: RiskRule) -> int:
    """Customers, for RISK-008 advisors, whom no scan has judged since they were marked."""
    if row.rule_id in ADVISOR_MODULES:
        return ConductChange.objects.filter(tenant=row.tenant).values("advisor_id").distinct().count()
    return CoreChange.objects.filter(tenant=row.tenant).values("customer_id").distinct().count()


def page_of(
    row: RiskRule,
    person: User,
    *,
    editing: bool = False,
    typed: Mapping[str, str] | None = None,
    period: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The context of a version's page. typed, period: what somebody sent and was refused.

    editing: figures are typed on a page of their own, without acts: nobody activates a version with other figures
    before their eyes than those that are stored.
    """
    rows = list(RiskRule.objects.filter(tenant=row.tenant, rule_id=row.rule_id).select_related("created_by"))
    now = in_force_of(rows, row.rule_id)
    rights_of = rights(person)
    edits = rights_of.change and row.status == RuleStatus.DRAFT
    open_ = row.status in (RuleStatus.DRAFT, RuleStatus.SHADOW)
    figures, damaged = readable(row.rule_id, row.params)
    own = open_ and is_own(row, person)
    last = Backtest.objects.filter(rule=row).order_by("-id").first()
    return {
        "row": row,
        "name": RULES.get(row.rule_id, row.rule_id),
        "now": now,
        "lines": lines_of(row.rule_id, {**figures, **(typed or {})}, now, errors),
        "reason": (typed or {}).get("reason", row.reason),
        "is_on": "on" in typed if typed is not None else row.is_on,
        "errors": errors or {},
        "taken": taken_of(row.rule_id),
        "may_edit": edits,
        "edits": edits and (editing or typed is not None),
        "damaged": damaged,
        "period": period or {},
        "is_open": open_,
        "own": own,
        "may": rights_of,
        "trial": trial_of(row),
        "backtest": last,
        "backtest_is_old": last is not None and last.revision != row.revision,
        "report": last.report if last and last.report else None,
        "versions": rows,
    }


def taken_of(rule_id: str) -> str:
    """The rule whose figures this one takes, or ''."""
    return TAKEN_FROM.get(rule_id, ("", frozenset()))[0]
