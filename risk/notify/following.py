"""From the feed to deliveries: an own reader, which keeps its place.

Rows are read in the order of `seq`, which the publisher stamps under its lock: none can appear behind the place,
however late it was committed. Deliveries and the place are written in one transaction, so an event is taken up once,
whoever dies; a channel that hangs holds up neither the reader nor the publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connection, transaction

from config.base.db import retry_conflicts
from risk.alerts.models import AlertOutbox, FeedHead
from risk.alerts.scoring import band
from risk.feed.events import Damaged, sound_event
from risk.feed.selectors import with_raw
from risk.notify.models import Band, NotifyCursor, NotifyDelivery, NotifyRule

logger = logging.getLogger(__name__)

BATCH = 500  # events of one transaction
_BANDS = list(Band)
_LEVELS = ["", "LEVEL_1", "LEVEL_2"]


class _Lost(Exception):
    """Another reader was first."""


def follow() -> int:
    """Makes a delivery for each new event and channel that a rule names. Returns how many.

    Idle: 2 queries. Else a transaction of 5 queries and an INSERT for 500 events. Errors: the database's.
    """
    places = dict(NotifyCursor.objects.values_list("pk", "seq"))
    made = 0
    for tenant, head in FeedHead.objects.order_by("pk").values_list("pk", "seq"):
        if tenant not in places:
            # By itself: several who insert it in their transactions would all hold it, and none could lock it.
            NotifyCursor.objects.get_or_create(tenant=tenant)
        while places.get(tenant, 0) < head:
            found = retry_conflicts(lambda tenant=tenant, head=head: _take(tenant, head))  # type: ignore[misc]
            if found is None:
                break
            places[tenant], count = found
            made += count
    return made


def _take(tenant: str, head: int) -> tuple[int, int] | None:
    """The new place, and how many deliveries; None: another reader is at it."""
    try:
        with transaction.atomic():
            skips = connection.features.has_select_for_update_skip_locked
            place = NotifyCursor.objects.select_for_update(skip_locked=skips).filter(pk=tenant).first()
            if place is None:
                return None
            if place.seq >= head:
                return place.seq, 0
            rows = with_raw(AlertOutbox.objects.filter(tenant=tenant, seq__gt=place.seq, seq__lte=head))
            events = list(rows.order_by("seq").values_list("seq", "kind", "raw", "created_at", "set_aside_at")[:BATCH])
            reached = events[-1][0] if len(events) == BATCH else head
            deliveries = _deliveries(tenant, events)
            NotifyDelivery.objects.bulk_create(deliveries)
            if not NotifyCursor.objects.filter(pk=tenant, seq=place.seq).update(seq=reached):
                raise _Lost
            return reached, len(deliveries)
    except _Lost:
        return None


def _deliveries(tenant: str, events: Iterable[tuple[Any, ...]]) -> list[NotifyDelivery]:
    told = [one for one in events if one[1] == AlertOutbox.Kind.ALERT and one[4] is None]
    if not told:
        return []
    rules = list(NotifyRule.objects.filter(tenant=tenant, enabled=True, channel__enabled=True).order_by("pk"))
    if not rules:
        return []
    seqs = [seq for seq, *_rest in told]
    # Only where somebody has set the place back: an event is not told twice for it.
    made = NotifyDelivery.objects.filter(tenant=tenant, seq__in=seqs).values_list("seq", "channel_id")
    there = set(made)
    found = []
    for seq, kind, raw, created_at, _aside in told:
        try:
            payload = sound_event(kind, raw)
        except Damaged:
            continue  # the publisher sets it aside, and tells its alert again under another number
        for rule in rules:
            channel = rule.channel_id  # type: ignore[attr-defined]
            if (seq, channel) in there or created_at < rule.active_since or not meets(rule, payload):
                continue
            there.add((seq, channel))
            found.append(
                NotifyDelivery(
                    tenant=tenant, channel_id=channel, seq=seq, alert_id=payload["alert_id"], body=payload,
                    rank=rank(payload), trace_id=str(payload["trace_id"])[:32],
                )
            )  # fmt: skip
    return found


def rank(payload: Mapping[str, Any]) -> int:
    """1: critical, by score or level."""
    critical = band(int(payload["risk_score"])) == Band.CRITICAL or payload.get("escalation_level") == "LEVEL_2"
    return 1 if critical else 2


def meets(rule: NotifyRule, payload: Mapping[str, Any]) -> bool:
    """Whether the rule names this event."""
    if rule.alert_type and rule.alert_type != payload["alert_type"]:
        return False
    if rule.role and rule.role not in payload["notify_role"]:
        return False
    level = str(payload.get("escalation_level", ""))
    if _LEVELS.index(level) < _LEVELS.index(rule.least_level):
        return False
    return _BANDS.index(Band(band(int(payload["risk_score"])))) >= _BANDS.index(Band(rule.least_band))
