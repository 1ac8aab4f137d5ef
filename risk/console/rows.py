"""What a row of the queue shows, on the queue, on the overview and when it arrives live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from config.base.clock import business_zone, now, rfc3339
from config.base.errors import DomainError
from memory.core import selectors as core
from memory.core.models import Channel
from risk.alerts.deadlines import OPEN, due_of
from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.counting import BANDS
from risk.console.filters import COLUMNS
from risk.console.queue import Page
from risk.console.sentences import sentence
from risk.console.subjects import subject_of
from risk.console.words import damage_words, subtype_words

SOON = timedelta(hours=2)  # the workbench's "due soon"


@dataclass(frozen=True)
class Due:
    """at: RFC 3339, for the page's clock. text: how it stood when the page was read."""

    at: str
    local: datetime
    text: str
    css: str  # late, soon or nothing


@dataclass(frozen=True)
class Beside:
    """What a page's rows show that is not the alert's own, by alert id."""

    top_hits: Mapping[str, RiskAlertHit] = field(default_factory=dict)
    new_hits: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def rows_of(page: Page, *, tenant: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """A page's rows. A query where the channel is shown, else none."""
    channels = channels_of(tenant, page.top_hits) if "branch" in columns else {}
    beside = Beside(page.top_hits, page.new_hits, channels)
    return [row_of(alert, beside) for alert in page.alerts]


def row_of(alert: RiskAlert, beside: Beside) -> dict[str, Any]:
    """What a row shows: the alert, and the sentence of its strongest hit."""
    hit = beside.top_hits.get(alert.pk)
    return {
        "alert": alert,
        "url": reverse("admin:risk_riskalert_change", args=[alert.pk]),
        "band": band(alert.score),
        "band_label": BANDS[band(alert.score)][2],
        "words": subtype_words(alert.subtypes) or alert.get_alert_type_display(),
        "sentence": damage_words(alert, hit) or (sentence(hit) if hit else ""),
        "subject": subject_of(alert),
        "advisor": alert.advisor_id,
        "channel": beside.channels.get(alert.pk, ""),
        "new_hits": beside.new_hits.get(alert.pk, 0),
        "due": due_chip(alert),
        "aside": _local(alert.snoozed_until) if alert.snoozed_until else None,
        "quiet": _local(alert.quiet_until) if alert.quiet_until and alert.quiet_until > now() else None,
        "woken": alert.get_woken_by_display() if alert.woken_by and alert.status in OPEN else "",
        "disposed": _local(alert.disposed_at) if alert.disposed_at else None,
        "case": alert.alert_type != AlertType.DATA_QUALITY,
        "opened": _local(alert.opened_at),
        "opened_iso": rfc3339(alert.opened_at),
        "ago": _ago(alert.opened_at),
    }


def channels_of(tenant: str, top_hits: Mapping[str, RiskAlertHit]) -> dict[str, str]:
    """How the trade of each strongest hit came in, by alert id, in words. 1 query; nothing where the core does not
    answer."""
    trades = {alert_id: hit.trade_id for alert_id, hit in top_hits.items() if hit.trade_id}
    if not trades:
        return {}
    try:
        found = core.trades(tenant=tenant, trade_ids=trades.values())
    except DomainError as error:
        if error.code != "CORE_UNAVAILABLE":
            raise
        return {}
    words = {channel.value: str(channel.label) for channel in Channel}
    return {
        alert_id: words.get(found[trade_id].channel, "") for alert_id, trade_id in trades.items() if trade_id in found
    }


def cells(columns: Sequence[str]) -> dict[str, Any]:
    """Which columns are shown, as templates ask for them, and the words of the page's clock."""
    return {**{name: name in columns for name in COLUMNS}, **clock_words()}


def clock_words() -> dict[str, str]:
    """What the page's clock puts its figures in: the same as here, which a template would look up with its signs
    doubled."""
    return {"left": _("%(time)s left"), "over": _("%(time)s over")}


def due_chip(alert: RiskAlert) -> Due | None:
    """The next limit of an open alert. Limits in working hours are instants too: the chip counts what is left on the
    wall."""
    due = due_of(alert) if alert.status in OPEN else None
    if due is None:
        return None
    at = now()
    if due < at:
        text, css = _("%(time)s over") % {"time": timesince(due, at, depth=1)}, "late"
    else:
        text = _("%(time)s left") % {"time": timesince(at, due, depth=1)}
        css = "soon" if due - at <= SOON else ""
    return Due(rfc3339(due), _local(due), text, css)


def _local(moment: datetime) -> datetime:
    return timezone.make_naive(moment.astimezone(business_zone()), business_zone())


def _ago(moment: datetime) -> str:
    at = now()
    if at - moment < timedelta(minutes=1):
        return _("just now")
    return _("%(time)s ago") % {"time": timesince(moment, at, depth=1)}
