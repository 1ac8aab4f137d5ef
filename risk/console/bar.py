"""The head of an alert's page: why it is here (again), and what is new about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from config.base.clock import now
from risk.alerts.models import DISPOSED, AlertAction, AlertStatus, RiskAlert
from risk.console.hitrows import HitRow
from risk.console.timeline import local


@dataclass(frozen=True)
class Reason:
    """A sentence of the head. text: what the officer wrote who is the cause. css: `warn` for what is to be looked at
    first."""

    words: str
    text: str = ""
    css: str = ""
    alert_id: str = ""  # of another alert that it leads to


def reasons_of(
    alert: RiskAlert, actions: Sequence[AlertAction], hits: Sequence[HitRow], written: Callable[[str], str]
) -> list[Reason]:
    """Why it woke, came back or was opened again, and what has come since. actions: newest first. Pure."""
    found: list[Reason] = []
    open_now = alert.status not in DISPOSED
    if alert.snoozed_until:
        found.append(_told(_last(actions, "snooze"), written, _("Put aside until %(until)s by %(who)s."),
                           until=local(alert.snoozed_until)))  # fmt: skip
    elif alert.woken_by and open_now:
        aside = _last(actions, "snooze")
        why = str(alert.get_woken_by_display())
        when = local(alert.woken_at)
        found.append(
            _told(aside, written, _("Woken at %(when)s because %(why)s. %(who)s had put it aside:"), "warn",
                  when=when, why=why)
            if aside is not None
            else Reason(_("Woken at %(when)s because %(why)s.") % {"when": when, "why": why}, css="warn")
        )  # fmt: skip
    moved = next((act for act in actions if act.from_status != act.to_status and act.action != "note"), None)
    if moved is not None and moved.action == "return" and alert.status == AlertStatus.IN_REVIEW:
        found.append(_told(moved, written, _("Returned by %(who)s at %(when)s:"), "warn"))
    if alert.reopened_at and open_now and (reopened := _last(actions, "reopen")) is not None:
        found.append(_told(reopened, written, _("Reopened by %(who)s at %(when)s:"), "warn"))
    if alert.parent_id:  # type: ignore[attr-defined]
        found.append(Reason(_("Opened because more came after this alert had been disposed of:"),
                            alert_id=alert.parent_id))  # type: ignore[attr-defined]  # fmt: skip
    late = sum(1 for row in hits if row.hit.after_disposition and row.hit.state == "live")
    if late and not open_now:
        found.append(Reason(
            ngettext("%(count)d hit has come since the disposition.", "%(count)d hits have come since the disposition.",
                     late) % {"count": late}, css="warn"))  # fmt: skip
    new = sum(1 for row in hits if row.new)
    if new:
        found.append(Reason(
            ngettext("%(count)d hit is new since you looked.", "%(count)d hits are new since you looked.", new)
            % {"count": new}, css="warn"))  # fmt: skip
    if alert.quiet_until and alert.quiet_until > now():
        found.append(Reason(_("Quiet until %(when)s for the same customer, rule and product.")
                            % {"when": local(alert.quiet_until)}))  # fmt: skip
    return found


def _last(actions: Sequence[AlertAction], name: str) -> AlertAction | None:
    return next((act for act in actions if act.action == name), None)


def _told(act: AlertAction | None, written: Callable[[str], str], words: str, css: str = "", **values: Any) -> Reason:
    who = act.actor.get_username() if act is not None and act.actor is not None else _("system")
    when = local(act.at) if act is not None else ""
    return Reason(words % {"who": who, "when": when, **values}, written(act.text) if act is not None else "", css)
