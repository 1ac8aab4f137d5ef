"""How long this room's rows are kept."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from config.base.retention import NO_LONGER, SUITABILITY, Retention, Rows, kept, of_customer, register
from risk.rules.models import Backtest, RiskRule, RuleStatus, ShadowHit


def shadows(before: datetime) -> QuerySet[ShadowHit]:
    in_shadow = RiskRule.objects.filter(pk=OuterRef("rule_id"), status=RuleStatus.SHADOW)
    return ShadowHit.objects.filter(changed_at__lt=before).exclude(Exists(in_shadow))


def backtests(before: datetime) -> QuerySet[Backtest]:
    return Backtest.objects.filter(finished_at__lt=before)


register(
    kept(RiskRule, "versions of rules", f"hits name the version they were found by. {SUITABILITY}"),
    Retention(
        ShadowHit._meta.db_table,
        "what a version in shadow would have found",
        f"a trial and no finding: nobody was told of it. {NO_LONGER}",
        days=400,
        since="its last change",
        held_back="a legal hold of the customer; a version that is in shadow",
        rows=Rows(ShadowHit, shadows, people=of_customer(ShadowHit)),
    ),
    Retention(
        Backtest._meta.db_table,
        "runs of versions over past trades",
        f"on what a version was judged; that it came into force is in the audit log. {NO_LONGER}",
        days=1826,
        since="its end",
        rows=Rows(Backtest, backtests),
    ),
)
