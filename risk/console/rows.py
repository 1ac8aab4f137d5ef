"""What a row of the queue shows, on the queue, on the overview and when it arrives live."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from config.base.clock import business_zone, now, rfc3339
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.page import subject_of
from risk.console.queue import BANDS
from risk.console.sentences import sentence
from risk.console.words import subtype_words


def row_of(alert: RiskAlert, hit: RiskAlertHit | None) -> dict[str, Any]:
    """What a row of the queue shows: the alert, and the sentence of its strongest hit."""
    opened = alert.opened_at.astimezone(business_zone())
    return {
        "alert": alert,
        "url": reverse("admin:risk_riskalert_change", args=[alert.pk]),
        "band": band(alert.score),
        "band_label": BANDS[band(alert.score)][2],
        "words": subtype_words(alert.subtypes) or alert.get_alert_type_display(),
        "sentence": sentence(hit) if hit else "",
        "subject": subject_of(alert),
        "opened": timezone.make_naive(opened, business_zone()),
        "opened_iso": rfc3339(alert.opened_at),
        "ago": _ago(alert.opened_at),
    }


def _ago(moment: datetime) -> str:
    at = now()
    if at - moment < timedelta(minutes=1):
        return _("just now")
    return _("%(time)s ago") % {"time": timesince(moment, at, depth=1)}
