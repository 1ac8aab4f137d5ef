"""Other alerts beside one: the customer's earlier ones and how they ended, and those that hang together with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.sight import Sight, alerts_of
from risk.console.subjects import subject_of
from risk.console.words import subtype_words

MOST_SAME_RULE = 10
MOST_OTHERS = 6
MOST_OF_A_KIND = 6  # related alerts found one way
_LOOKED_AT = 60  # a customer's newest alerts; hits of a product
DAYS = timedelta(days=7)
MAX_TEXT = 200

SAME_TRACE = _("same trace")
SAME_ADVISOR = _("same advisor")
SAME_PRODUCT = _("same product")
BEFORE_IT = _("this one follows it")
AFTER_IT = _("follow-up of this one")
BESIDE_IT = _("follow-up of the same")


@dataclass(frozen=True)
class EarlierRow:
    """same_rule: a rule of this alert found it too. text: the beginning of the reason for its disposition."""

    alert: RiskAlert
    words: str
    band: str
    same_rule: bool
    text: str


@dataclass(frozen=True)
class RelatedRow:
    """why: what it shares with this one."""

    alert: RiskAlert
    words: str
    band: str
    subject: str
    why: Sequence[Promise]


def earlier_alerts(alert: RiskAlert, sight: Sight, written: Callable[[str], str]) -> list[EarlierRow]:
    """Of the same customer (of conduct: the same advisor) as far as in sight, newest first: MOST_SAME_RULE of the same
    rules and MOST_OTHERS of others. written: what becomes of people's words before they are shown. One query."""
    others = alerts_of(tenant=alert.tenant, sight=sight).exclude(pk=alert.pk)
    if alert.alert_type == AlertType.PATTERN:
        others = others.filter(alert_type=AlertType.PATTERN, advisor_id=alert.advisor_id)
    else:
        others = others.filter(customer_id=alert.customer_id)
        if alert.alert_type != AlertType.DATA_QUALITY:
            others = others.exclude(alert_type=AlertType.DATA_QUALITY)
    rules = set(alert.rule_ids)
    rows: list[EarlierRow] = []
    left = {True: MOST_SAME_RULE, False: MOST_OTHERS}
    for row in others.select_related("assignee", "disposed_by").defer("payload").order_by("-opened_at")[:_LOOKED_AT]:
        same = bool(rules & set(row.rule_ids))
        if left[same]:
            left[same] -= 1
            text = written(row.disposition_text)
            text = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
            rows.append(EarlierRow(row, subtype_words(row.subtypes), band(row.score), same, text))
    return rows


def related_alerts(
    alert: RiskAlert, hits: Sequence[RiskAlertHit], traces: Collection[str], sight: Sight
) -> list[RelatedRow]:
    """Follow-ups and what it follows, alerts under the same trace, of the same advisor and of the same product within
    DAYS; of others' customers too, as far as in sight. Newest first, MOST_OF_A_KIND of each kind.

    Five queries, fewer where the alert has no trace, advisor or product. The product is that of the weightiest hit.
    """
    if not sight.cases or alert.alert_type == AlertType.DATA_QUALITY:
        return []
    cases = alerts_of(tenant=alert.tenant, sight=sight).exclude(alert_type=AlertType.DATA_QUALITY)
    why: dict[str, list[Promise]] = defaultdict(list)

    def found(ids: Any, reason: Promise) -> None:
        for alert_id in ids:
            if alert_id != alert.pk:
                why[alert_id].append(reason)

    family = Q(parent_id=alert.pk)
    if alert.parent_id:  # type: ignore[attr-defined]
        family |= Q(pk=alert.parent_id) | Q(parent_id=alert.parent_id)  # type: ignore[attr-defined]
    for row in RiskAlert.objects.filter(family).order_by("-opened_at").values("pk", "parent_id")[:MOST_OF_A_KIND]:
        parent = row["pk"] == alert.parent_id  # type: ignore[attr-defined]
        found([row["pk"]], BEFORE_IT if parent else AFTER_IT if row["parent_id"] == alert.pk else BESIDE_IT)
    if traces:
        same = RiskAlert.objects.filter(tenant=alert.tenant, trace_id__in=set(traces)).order_by("-opened_at")
        found(same.values_list("pk", flat=True)[: MOST_OF_A_KIND + 1], SAME_TRACE)
    days = (alert.opened_at - DAYS, alert.opened_at + DAYS)
    if alert.advisor_id:
        same = RiskAlert.objects.filter(tenant=alert.tenant, advisor_id=alert.advisor_id, opened_at__range=days)
        same = same.exclude(pk=alert.pk).order_by("-opened_at")
        # The customer's own stand among the earlier ones.
        if alert.customer_id:
            same = same.exclude(customer_id=alert.customer_id)
        found(same.values_list("pk", flat=True)[:MOST_OF_A_KIND], SAME_ADVISOR)
    found(_of_product(alert, hits), SAME_PRODUCT)
    # Asked for also where there are none: a page costs the same whatever there is.
    rows = cases.filter(pk__in=list(why) or [""]).select_related("assignee").defer("payload").order_by("-opened_at")
    return [RelatedRow(row, subtype_words(row.subtypes), band(row.score), subject_of(row), why[row.pk]) for row in rows]


def _of_product(alert: RiskAlert, hits: Sequence[RiskAlertHit]) -> list[str]:
    """Alerts of other customers with hits of the product around the weightiest hit. One query by (product, time)."""
    weighty = max((hit for hit in hits if hit.product_id), key=lambda hit: (hit.score, hit.pk), default=None)
    if weighty is None:
        return []
    span = (weighty.occurred_at - DAYS, weighty.occurred_at + DAYS)
    same = RiskAlertHit.objects.filter(tenant=alert.tenant, product_id=weighty.product_id, occurred_at__range=span)
    newest = same.order_by("-occurred_at").values_list("alert_id", "customer_id")[:_LOOKED_AT]
    others = [alert_id for alert_id, customer_id in newest if customer_id != alert.customer_id or not customer_id]
    return list(dict.fromkeys(others))[:MOST_OF_A_KIND]
