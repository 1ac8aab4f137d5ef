"""Who is judged again when a version takes effect: everybody, and nobody slips through while it does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q

from config.base.clock import now
from config.base.db import retry_conflicts
from memory.core.importer import mark
from memory.core.selectors import known_customer_ids
from risk.rules.engine import ADVISOR_MODULES
from risk.rules.models import RiskRule, RuleStatus

_mark_advisors: list[Callable[[str], None]] = []


def register_advisors_marker(marker: Callable[[str], None]) -> None:
    """Told at ready() by the room that judges advisors: tenant -> every advisor is judged again. Called in the
    transaction of the change."""
    _mark_advisors.append(marker)


MARKED_WITHIN = timedelta(minutes=1)  # after a commit; then whoever should have done it is taken for dead


def mark_everybody(row: RiskRule) -> None:
    """Within the transaction of the change, and after it those who were imported meanwhile: a scanner may have judged
    them by what was in force until then, before this transaction could see them."""
    marked = None if row.rule_id in ADVISOR_MODULES else known_customer_ids(tenant=row.tenant)
    _mark(row.tenant, row.rule_id, marked)
    transaction.on_commit(partial(_mark_newcomers, row.pk, marked), robust=True)


def _mark_newcomers(pk: int, marked: Collection[str] | None) -> None:
    """marked: who was marked in the transaction of the change; None where that is not known. Of advisors all are
    marked again, for new days of those who were known count too. What waits twice is judged once."""
    with transaction.atomic():
        row = RiskRule.objects.select_for_update().filter(pk=pk, marks_due=True).first()
        if row is not None:
            if row.rule_id in ADVISOR_MODULES:
                _mark(row.tenant, row.rule_id, None)
            else:
                _mark(row.tenant, row.rule_id, set(known_customer_ids(tenant=row.tenant)) - set(marked or ()))
            RiskRule.objects.filter(pk=pk).update(marks_due=False)


def finish_marking() -> int:
    """Marks whom an activation that died right after its commit could not mark; how many versions. Called by the
    beat with the backtests: one query where there is nothing to do."""
    since = now() - MARKED_WITHIN
    took_effect = Q(status=RuleStatus.ACTIVE, activated_at__lt=since) | Q(
        status=RuleStatus.SHADOW, shadowed_at__lt=since
    )
    due = list(RiskRule.objects.filter(took_effect, marks_due=True).values_list("pk", flat=True))
    for pk in due:
        retry_conflicts(partial(_mark_newcomers, pk, None))
    return len(due)


def _mark(tenant: str, rule_id: str, customer_ids: Collection[str] | None) -> None:
    if rule_id in ADVISOR_MODULES:
        for marker in _mark_advisors:
            marker(tenant)
    else:
        mark(tenant=tenant, customer_ids=customer_ids or (), priority=1)
