"""What has happened to an alert since a page showed it: who did what, for the banner of the open page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from config.base.asked import number
from risk.alerts.acting import REMARKS
from risk.alerts.models import AlertAction, AlertStatus, HitState, RiskAlert, RiskAlertHit
from risk.console.acts import deed
from risk.console.timeline import local
from risk.console.words import ACTIONS

MOST_TOLD = 5


def told_since(alert: RiskAlert, *, after: int, version: int) -> dict[str, Any]:
    """Sentences in the reader's language, the oldest first, at most MOST_TOLD and how many more there are; status and
    assignee as they are now. after: the newest act that the page shows. version: the alert's, as shown. Two queries.

    No text of an act is in it, and nobody's name but officers'.
    """
    later = AlertAction.objects.filter(alert=alert, pk__gt=after).select_related("actor").defer("text")
    acts = list(later.order_by("-pk")[: MOST_TOLD * 10])[::-1]
    told = [_told(act) for act in acts][-MOST_TOLD:]
    hits = RiskAlertHit.objects.filter(alert=alert, state=HitState.LIVE, alert_version__gt=version).count()
    if hits:
        told.append(ngettext("%(count)d new hit.", "%(count)d new hits.", hits) % {"count": hits})
    earlier = len(acts) - MOST_TOLD
    if earlier > 0:
        told.insert(
            0, ngettext("%(count)d earlier change.", "%(count)d earlier changes.", earlier) % {"count": earlier}
        )
    return {
        "told": told,
        "after": max([after, *(act.pk for act in acts)]),
        "version": alert.version,
        "status": alert.status,
        "status_words": str(alert.get_status_display()),
        "assignee": alert.assignee.get_username() if alert.assignee else "—",
        "hits": hits,
    }


def _told(act: AlertAction) -> str:
    when = local(act.at)
    words = str(ACTIONS.get(act.action, act.action))
    if act.actor is None:
        return _("%(when)s: %(what)s.") % {"when": when, "what": words}
    who = act.actor.get_username()
    if act.action in REMARKS:
        return _("%(who)s, %(when)s: %(what)s.") % {"who": who, "when": when, "what": words}
    status = str(AlertStatus(act.to_status).label) if act.to_status in AlertStatus.values else act.to_status
    return deed(act.action, who=who, when=when, status=status)


def since_answer(request: HttpRequest, alert: RiskAlert) -> HttpResponse:
    """`?after=ID&version=N` -> `told_since`; what is no number counts as 0."""
    after, version = (number(request.GET.get(name, "")) or 0 for name in ("after", "version"))
    response = JsonResponse(told_since(alert, after=after, version=version))
    response["Cache-Control"] = "no-store"
    return response
