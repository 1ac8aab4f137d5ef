"""All that happened to an alert, newest first: officers' acts, levels, hits that joined, looks behind the masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import business_zone
from guard.audit.about import rows_of_object
from guard.audit.models import AuditLog, Decision, EventType
from risk.alerts.models import AlertAction, RiskAlert, WokenBy
from risk.console.words import ACTIONS, RULES, subtype_words

MAX_ROWS = 200
# What of the audit log belongs here that is no act of its own on the alert.
_EVENTS = (EventType.ALERT_STATUS, EventType.ALERT_MERGED, EventType.UNMASK)
_MERGED: dict[str, Any] = {
    Decision.MERGED: gettext_lazy("a hit joined"),
    Decision.AFTER_DISPOSITION: gettext_lazy("a hit came after the disposition"),
    Decision.QUIETED: gettext_lazy("a hit came within the quiet period"),
}
REVISED = gettext_lazy("a hit was revised")
UNMASKED = gettext_lazy("the customer was shown in clear")


@dataclass(frozen=True)
class ActionRow:
    """action: None for what is no act. who: '' for the system. beside: what else there is to know of it, in words."""

    at: datetime
    words: Any
    who: str
    text: str
    beside: Sequence[str] = ()
    action: AlertAction | None = None


@dataclass(frozen=True)
class Timeline:
    """rows: newest first, without the opening. more: older ones are left out."""

    rows: Sequence[ActionRow]
    actions: Sequence[AlertAction]
    more: bool


def timeline_of(alert: RiskAlert, written: Callable[[str], str]) -> Timeline:
    """The newest MAX_ROWS. written: what becomes of people's words before they are shown. Two queries."""
    acts = AlertAction.objects.filter(alert=alert).select_related("actor").order_by("-at", "-id")
    actions = list(acts[: MAX_ROWS + 1])
    told = rows_of_object(
        tenant=alert.tenant, object_id=alert.pk, object_type="risk_alert", event_types=_EVENTS, limit=MAX_ROWS + 1
    )
    status = {row.input_summary.get("version"): row for row in told if row.event_type == EventType.ALERT_STATUS}
    rows = [_of_action(action, status.get(action.alert_version), written) for action in actions]
    rows += [row for one in told if (row := _of_audit(one, written)) is not None]
    rows.sort(key=lambda row: row.at, reverse=True)
    more = max(len(actions), len(told), len(rows)) > MAX_ROWS
    return Timeline(rows[:MAX_ROWS], actions, more)


def _of_action(action: AlertAction, told: AuditLog | None, written: Callable[[str], str]) -> ActionRow:
    text = action.text
    beside: list[str] = []
    if action.action == "wake" and text in WokenBy.values:  # why, which is a word of ours
        beside.append(str(WokenBy(text).label))
        text = ""
    summary = told.input_summary if told is not None and isinstance(told.input_summary, dict) else {}
    if action.actor_id and action.action != "note":  # type: ignore[attr-defined]
        beside += _more(summary, action.action)
    return ActionRow(
        action.at,
        ACTIONS.get(action.action, action.action),
        action.actor.get_username() if action.actor else "",
        written(text),
        beside,
        action,
    )


def _more(summary: Mapping[str, Any], action: str) -> list[str]:
    """What the audit row of an act tells that the act itself does not hold."""
    found = []
    if action == "assign" and summary.get("to_officer"):
        found.append(_("to %(who)s") % {"who": summary["to_officer"]})
    if action == "snooze" and summary.get("until"):
        found.append(_("until %(when)s") % {"when": local(summary["until"])})
    if action in ("dispose", "approve", "propose") and summary.get("quiet_days"):
        found.append(_("quiet period of %(days)s days") % {"days": summary["quiet_days"]})
    if summary.get("at_once"):
        found.append(_("one of %(count)s at once") % {"count": summary["at_once"]})
    return found


def _of_audit(row: AuditLog, written: Callable[[str], str]) -> ActionRow | None:
    summary = row.input_summary if isinstance(row.input_summary, dict) else {}
    if row.event_type == EventType.ALERT_MERGED:
        revised = row.decision == Decision.MERGED and (summary.get("revision") or 1) > 1
        subtypes = summary.get("subtypes")
        beside = [str(RULES.get(row.code, row.code))]
        if isinstance(subtypes, list):
            beside.append(subtype_words(subtypes))
        if row.risk_score is not None:
            beside.append(_("score %(score)s") % {"score": row.risk_score})
        return ActionRow(row.at, REVISED if revised else _MERGED.get(row.decision, row.decision), "", "", beside)
    if row.event_type == EventType.UNMASK and row.decision == Decision.GRANTED:
        return ActionRow(row.at, UNMASKED, row.actor_id, written(str(summary.get("reason") or "")))
    return None


def local(told: Any) -> str:
    """A stored instant as `2026-06-15 21:04` in the business time zone; what is none is left as it is."""
    moment = told if isinstance(told, datetime) else None
    try:
        moment = moment or datetime.fromisoformat(str(told))
        return moment.astimezone(business_zone()).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return str(told or "")
