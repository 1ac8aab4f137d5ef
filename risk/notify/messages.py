"""What is said, in the channel's language: the published payload's fields and a link, nothing else of the alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from risk.alerts.models import AlertType
from risk.alerts.scoring import band
from risk.console.words import subtype_words
from risk.notify.models import Band, NotifyDelivery

MOST_BYTES = 1_800  # of a text: WeCom takes 2048
LISTED = 10  # alerts that a summary names


@dataclass(frozen=True)
class Message:
    title: str
    body: str


def link(alert_id: str) -> str:
    """Where the alert's page is; '' without PUBLIC_URL."""
    return settings.PUBLIC_URL + reverse("admin:risk_riskalert_change", args=[alert_id]) if settings.PUBLIC_URL else ""


def compose(*, kind: str, body: Mapping[str, Any], language: str) -> Message:
    """kind, body: of a delivery."""
    with translation.override(language):
        if kind == NotifyDelivery.Kind.TEST:
            return Message(_("Xinghuo: a test"), _("This channel is set up. No alert is meant."))
        if kind == NotifyDelivery.Kind.DIGEST:
            return _digest(body)
        return _alert(body)


def _headline(payload: Mapping[str, Any]) -> str:
    score = int(payload["risk_score"])
    words = {"type": AlertType(payload["alert_type"]).label, "score": score, "band": Band(band(score)).label}
    line = _("%(type)s, score %(score)d (%(band)s)") % words
    level = payload.get("escalation_level")
    if level:
        line += ", " + (_("level 2") if level == "LEVEL_2" else _("level 1"))
    return line


def _alert(payload: Mapping[str, Any]) -> Message:
    who = _("Advisor") if payload["alert_type"] == AlertType.PATTERN else _("Customer")
    lines = [f"{who}: {payload['customer_id_mask']}"]
    if subtypes := payload.get("alert_subtype"):
        lines.append(_("What: %(words)s") % {"words": subtype_words(list(subtypes))})
    if address := link(payload["alert_id"]):
        lines.append(address)
    else:
        lines.append(_("Alert: %(id)s") % {"id": payload["alert_id"]})
    return Message(_headline(payload), "\n".join(lines))


def _digest(body: Mapping[str, Any]) -> Message:
    count = int(body["events"])
    title = ngettext("%(count)d alert, in summary", "%(count)d alerts, in summary", count) % {"count": count}
    lines = []
    bands = body["bands"]
    said = [f"{one.label} {bands[one.value]}" for one in reversed(Band) if bands.get(one.value)]
    lines.append(_("By score: %(bands)s") % {"bands": ", ".join(said)})
    if body["level_2"]:
        lines.append(_("Level 2: %(count)d") % {"count": body["level_2"]})
    if settings.PUBLIC_URL:
        lines.append(settings.PUBLIC_URL + reverse("admin:risk_riskalert_changelist"))
    lines += [f"- {_headline(one)} {link(one['alert_id'])}".rstrip() for one in body["first"]]
    return Message(title, _fitting(lines))


def _fitting(lines: Sequence[str]) -> str:
    """As many whole lines as MOST_BYTES hold."""
    taken: list[str] = []
    size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > MOST_BYTES:
            break
        taken.append(line)
    return "\n".join(taken)


def digest_body(payloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a summary holds of these alerts: counts, and the most urgent of them."""
    bands: dict[str, int] = {}
    for payload in payloads:
        name = band(int(payload["risk_score"]))
        bands[name] = bands.get(name, 0) + 1
    urgent = sorted(payloads, key=lambda one: (one.get("escalation_level", "") != "LEVEL_2", -int(one["risk_score"])))
    level_2 = sum(one.get("escalation_level") == "LEVEL_2" for one in payloads)
    return {
        "events": len(payloads),
        "bands": bands,
        "level_2": level_2,
        "first": [dict(one) for one in urgent[:LISTED]],
    }
