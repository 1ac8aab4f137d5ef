"""The list under the bell: what the feed has told of last, out of MySQL, with how each alert stands now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse

from config.base.asked import number
from config.base.clock import now, rfc3339
from guard.access.roles import RISK_MANAGER, RISK_OFFICER
from risk.alerts.models import AlertOutbox, AlertStatus, AlertType, RiskAlert, Shelf
from risk.console.feed import feed_person, feed_seq, request_sight, request_tenant
from risk.console.queue import Page, top_hits
from risk.console.rows import rows_of
from risk.console.sight import Sight, alerts_of
from risk.feed.events import Damaged, sound_event
from risk.feed.selectors import with_raw

MOST = 30  # alerts of the list
LOOK_BACK = 2_000  # numbers of the feed that are searched for them: updates stand between
DAY = timedelta(hours=24)
HELD_MOST = 500  # open alerts of one officer
KINDS = (AlertType.EVENT, AlertType.REPORT, AlertType.PATTERN)


def recent_view(request: HttpRequest) -> HttpResponse:
    """`{place, head, items, held}` as JSON, for who may see cases. `seq` (repeated): numbers of updates that were news
    to this person, shown as well. 7 queries beside those of every page."""
    sight = request_sight(request)
    if not sight.cases:
        raise PermissionDenied
    tenant, head = request_tenant(request), feed_seq(request)
    named = [seq for words in request.GET.getlist("seq")[:MOST] if (seq := number(words)) is not None]
    told = _told(tenant=tenant, head=head, named=named, called=_role(request.user, sight))
    alerts = alerts_of(tenant=tenant, sight=sight).filter(pk__in=told, alert_type__in=KINDS).select_related("assignee")
    found = sorted(alerts, key=lambda alert: -told[alert.pk][0])
    rows = rows_of(Page(found, top_hits=top_hits(found)), tenant=tenant, columns=())
    response = JsonResponse(
        {
            "place": feed_person(request),
            "head": head,
            "items": [_item(row, *told[row["alert"].pk]) for row in rows],
            "held": _held(tenant=tenant, user=request.user),
        }
    )
    response["Cache-Control"] = "no-store"
    return response


def _role(user: AbstractBaseUser | AnonymousUser, sight: Sight) -> str:
    """As whom an alert calls this person; nothing for who is called by all."""
    if getattr(user, "is_superuser", False):
        return ""
    return RISK_OFFICER if sight.acts else RISK_MANAGER


def _told(*, tenant: str, head: int, named: Iterable[int], called: str) -> dict[str, tuple[int, str]]:
    """The newest MOST alerts that were told to `called` within a day, or by one of these numbers: their last number and
    when it was written, by alert id. 2 queries, by index."""
    # One that has no number yet was told to nobody; and below 0 there are none: Django drops such a condition.
    rows = with_raw(AlertOutbox.objects.filter(tenant=tenant, set_aside_at=None, seq__isnull=False))
    columns = ("seq", "alert_id", "kind", "raw", "created_at")
    loud = rows.filter(seq__gt=max(head - LOOK_BACK, 0), kind=AlertOutbox.Kind.ALERT, created_at__gt=now() - DAY)
    found = list(loud.order_by("-seq").values_list(*columns)[: 4 * MOST])
    found += rows.filter(seq__in=named).values_list(*columns)
    told: dict[str, tuple[int, str]] = {}
    for seq, alert_id, kind, raw, at in sorted(found, key=lambda row: -row[0]):
        if alert_id in told or len(told) == MOST:
            continue
        try:
            roles = sound_event(kind, raw).get("notify_role", [called])
        except Damaged:
            continue
        if not called or called in roles:
            told[alert_id] = (seq, rfc3339(at))
    return told


def _held(*, tenant: str, user: AbstractBaseUser | AnonymousUser) -> dict[str, str]:
    """The open alerts in this person's hands, with their status. By an index."""
    shelves = (Shelf.OPEN, Shelf.ASIDE)
    mine = RiskAlert.objects.filter(tenant=tenant, alert_type__in=KINDS, shelf__in=shelves, assignee_id=user.pk)
    return dict(mine.exclude(status=AlertStatus.PENDING).order_by().values_list("pk", "status")[:HELD_MOST])


def _item(row: Mapping[str, Any], seq: int, at: str) -> dict[str, Any]:
    """What the list shows, masked as the queue is."""
    alert: RiskAlert = row["alert"]
    words = str(row["words"])
    return {
        "seq": seq,
        "at": at,
        "alert_id": alert.pk,
        "url": row["url"],
        "score": alert.score,
        "band": row["band"],
        "words": words[:1].upper() + words[1:],
        "sentence": row["sentence"],
        "subject": row["subject"],
        "level": alert.get_escalation_level_display() if alert.escalation_level else "",
        "status": alert.status,
        "status_label": alert.get_status_display(),
        "assignee": alert.assignee.get_username() if alert.assignee else "",
    }
