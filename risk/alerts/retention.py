"""How long alerts and their evidence are kept, and the events that tell of them.

An alert whose trade the core still has would be found anew by the next scan of the customer if its hits were gone. So
it waits for the core: what decides how long is the trade.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from config.base.removal import delete_by_key
from config.base.retention import (
    AML,
    SUITABILITY,
    TWENTY_YEARS,
    Retention,
    Rows,
    along,
    kept,
    of_customer,
    register,
)
from memory.core.models import CoreCustomer
from memory.core.selectors import trades
from risk.alerts.casework import AlertAttachment, AttachmentChunk, CaseFile, InformationRequest
from risk.alerts.models import (
    DISPOSED,
    AlertAction,
    AlertLook,
    AlertOutbox,
    AlertType,
    FeedHead,
    RiskAlert,
    RiskAlertHit,
)

ALERT = RiskAlert._meta.db_table


def due(before: datetime) -> QuerySet[RiskAlert]:
    """Disposed of, and nothing happened since: no hit, no act, no follow-up. Conduct is found in `audit_log`, which is
    kept for good, and so are its alerts."""
    rows = RiskAlert.objects.filter(status__in=DISPOSED, disposed_at__lt=before, updated_at__lt=before)
    rows = rows.exclude(alert_type=AlertType.PATTERN).filter(Q(quiet_until=None) | Q(quiet_until__lt=before))
    return rows.exclude(Exists(RiskAlertHit.objects.filter(alert_id=OuterRef("pk"), detected_at__gte=before))).exclude(
        Exists(RiskAlert.objects.filter(parent_id=OuterRef("pk")))
    )


def found_again(pks: Sequence[str], before: datetime) -> Collection[str]:
    """Alerts with a trade (or, where a fault is in no trade, a customer) that the core still has.

    1 query of the hits and 1 or 2 of the core for each tenant. Errors: CORE_UNAVAILABLE.
    """
    hits = RiskAlertHit.objects.filter(alert_id__in=pks).order_by()
    rows = list(hits.values_list("alert_id", "tenant", "trade_id", "customer_id"))
    wanted: set[str] = set()
    for tenant in {tenant for _alert, tenant, _trade, _customer in rows}:
        mine = [(alert, trade, customer) for alert, of, trade, customer in rows if of == tenant]
        there = trades(tenant=tenant, trade_ids=[trade for _alert, trade, _customer in mine if trade])
        untraded = {customer for _alert, trade, customer in mine if not trade}
        known = CoreCustomer.objects.filter(tenant=tenant, customer_id__in=untraded)
        there_too = set(known.values_list("customer_id", flat=True)) if untraded else set()
        wanted |= {alert for alert, trade, customer in mine if trade in there or (not trade and customer in there_too)}
    return wanted


def remove(pks: Sequence[str], before: datetime) -> Mapping[str, int]:
    """Whole alerts, so that none is ever seen without its evidence."""
    counts = {}
    if pieces := AttachmentChunk.objects.filter(attachment__alert_id__in=pks).delete()[0]:
        counts[AttachmentChunk._meta.db_table] = pieces
    added: tuple[type[Model], ...] = (AlertAttachment, InformationRequest, CaseFile)
    for table in added:
        if gone := table._default_manager.filter(alert_id__in=pks).delete()[0]:
            counts[table._meta.db_table] = gone
    for model in (AlertAction, RiskAlertHit):
        counts[model._meta.db_table] = model._default_manager.filter(alert_id__in=pks).delete()[0]
    if looks := AlertLook.objects.filter(alert_id__in=pks).delete()[0]:
        counts[AlertLook._meta.db_table] = looks
    delete_by_key(RiskAlert, pks)
    return counts


def sent(before: datetime) -> QuerySet[AlertOutbox]:
    return AlertOutbox.objects.filter(published_at__lt=before)


def from_the_beginning(before: datetime, tenant: str | None, limit: int) -> Iterator[list[Any]]:
    """In the order of the feed, up to the first event that stays: a resume from before the gap is told to reload, and
    never skips one. 2 queries a tenant, and 1 a batch."""
    tenants = [tenant] if tenant is not None else list(FeedHead.objects.order_by("pk").values_list("pk", flat=True))
    for of in tenants:
        events = AlertOutbox.objects.filter(tenant=of, seq__isnull=False).order_by("seq")
        stays = events.exclude(published_at__lt=before).values_list("seq", flat=True).first()
        over = events if stays is None else events.filter(seq__lt=stays)
        last = -1
        while found := list(over.filter(seq__gt=last).values_list("pk", "seq")[:limit]):
            last = found[-1][1] or 0
            yield [pk for pk, _seq in found]


register(
    Retention(
        ALERT,
        "alerts that were disposed of, with their hits and acts",
        f"what was found, judged and done. {SUITABILITY}. {AML}",
        days=TWENTY_YEARS,
        floor=TWENTY_YEARS,
        since="disposed of, and the last hit or act",
        held_back="a legal hold of the customer; an open alert; a follow-up; an alert of advisors' conduct; a trade"
        " that the core still has",
        rows=Rows(RiskAlert, due, remove=remove, people=of_customer(RiskAlert), spare=found_again, again=True),
    ),
    along(RiskAlertHit, "findings", ALERT),
    along(AlertAction, "what was done with alerts", ALERT),
    along(
        AlertAttachment, "files that officers added to alerts; an erasure of the customer takes name and bytes", ALERT
    ),
    along(AttachmentChunk, "the bytes of those files", AlertAttachment._meta.db_table),
    along(InformationRequest, "questions about alerts, with their answers", ALERT),
    along(CaseFile, "the hashes of case files that were handed out", ALERT),
    along(AlertLook, "who has last looked at which version of an alert", ALERT),
    Retention(
        AlertOutbox._meta.db_table,
        "events of the feed",
        "officers who come back resume from it; the alert says the same",
        days=90,
        since="sent",
        held_back="an event that was not sent, and what came after it",
        rows=Rows(AlertOutbox, sent, find=from_the_beginning, wait=True),
    ),
    kept(FeedHead, "the feed's last number, a row a tenant", "a number must never be given twice"),
)
