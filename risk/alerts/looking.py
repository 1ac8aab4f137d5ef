"""Which version of an alert a person has last looked at, and what has come since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.db.models import Count, F, OuterRef, Q, Subquery

from config.base.clock import now
from risk.alerts.models import AlertLook, HitState, RiskAlert, RiskAlertHit


def look(*, alert: RiskAlert, person: Any) -> None:
    """They have this version of the alert before them. One INSERT that updates."""
    target = connections[AlertLook.objects.db].features.supports_update_conflicts_with_target
    AlertLook.objects.bulk_create(
        [AlertLook(alert=alert, person_id=person.pk, version=alert.version, at=now())],
        update_conflicts=True,
        update_fields=["version", "at"],
        unique_fields=["alert", "person"] if target else None,
    )


def new_hits(*, alert_ids: Sequence[str], person: Any) -> dict[str, int]:
    """How many live hits have come since they looked, by alert; alerts they never looked at are not in it. 1 query."""
    mine = AlertLook.objects.filter(alert_id=OuterRef("alert_id"), person_id=person.pk)
    hits = RiskAlertHit.objects.filter(alert_id__in=alert_ids, state=HitState.LIVE)
    hits = hits.annotate(seen=Subquery(mine.values("version")[:1]), looked=Subquery(mine.values("at")[:1]))
    # What came after a disposition raises no version.
    since = hits.filter(Q(alert_version__gt=F("seen")) | Q(alert_version=None, detected_at__gt=F("looked")))
    return dict(since.order_by().values_list("alert_id").annotate(Count("pk")))
