"""Reads of outward notifications: how far behind they are, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q

from config.base.clock import now
from risk.alerts.models import FeedHead
from risk.notify.models import DeliveryState, NotifyChannel, NotifyCursor, NotifyDelivery, NotifyRule
from risk.notify.sealing import SecretLost, unseal

FAILED_WITHIN = timedelta(days=1)
COUNTED = 10_000  # rows that are counted, and no more


@dataclass(frozen=True)
class Standing:
    """waiting: messages to be sent. late: seconds that the oldest one that may go has waited since. unread: events that
    no delivery was made of yet, where there are rules. failed, unknown: of the last day. lost: channels in use whose
    secrets no key opens."""

    waiting: int
    late: float
    unread: int
    failed: int
    unknown: int
    lost: int


def standing() -> Standing:
    """6 queries by index, and a decryption a channel in use."""
    moment = now()
    waiting = NotifyDelivery.objects.filter(
        Q(state=DeliveryState.WAITING) | Q(state=DeliveryState.SENDING), channel__enabled=True
    ).order_by()
    # What its channel's pause or quiet hours hold back is not late.
    free = Q(channel__not_before=None) | Q(channel__not_before__lte=moment)
    due = waiting.filter(free, state=DeliveryState.WAITING, next_at__lte=moment).exclude(
        rank=2, channel__quiet_from__isnull=False
    )
    oldest = due.order_by("next_at").values_list("next_at", flat=True).first()
    over = NotifyDelivery.objects.filter(done_at__gte=moment - FAILED_WITHIN).order_by()
    places = dict(NotifyCursor.objects.values_list("pk", "seq"))
    ruled = set(NotifyRule.objects.filter(enabled=True, channel__enabled=True).values_list("tenant", flat=True))
    heads = FeedHead.objects.filter(pk__in=ruled).values_list("pk", "seq")
    return Standing(
        waiting=waiting[:COUNTED].count(),
        late=max(0.0, (moment - oldest).total_seconds()) if oldest else 0.0,
        unread=sum(max(0, seq - places.get(tenant, 0)) for tenant, seq in heads),
        failed=over.filter(state=DeliveryState.FAILED)[:COUNTED].count(),
        unknown=over.filter(state=DeliveryState.UNKNOWN)[:COUNTED].count(),
        lost=sum(_is_lost(*row) for row in NotifyChannel.objects.filter(enabled=True).values_list("pk", "sealed")),
    )


def _is_lost(channel_id: str, sealed: str) -> bool:
    try:
        unseal(channel_id=channel_id, sealed=sealed)
    except SecretLost:
        return True
    return False
