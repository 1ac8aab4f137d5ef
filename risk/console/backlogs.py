"""What is on its way: events that the feed has not sent, messages that are not in the database yet, audit rows that no
seal holds. What cannot be asked is said to be unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from redis.exceptions import ResponseError

from config.base.clock import now
from config.base.redis import RedisUnavailable
from guard.audit.models import AuditLog, EventType
from guard.audit.sealing import backlog as seals_behind
from memory.sessions.backlog import backlog as messages_waiting
from memory.sessions.backlog import waiting_letters
from risk.alerts.models import AlertOutbox
from risk.console.queue import COUNT_LIMIT
from risk.feed.selectors import head, set_aside

GOOD, SLOW, BAD = "good", "warn", "bad"


@dataclass(frozen=True)
class State:
    """One line: what, how it stands in words, and how bad that is."""

    label: str
    words: str
    how: str = GOOD
    link: str = ""
    note: str = ""

    @property
    def sign(self) -> str:
        return {GOOD: _("in order"), SLOW: _("look at it"), BAD: _("not in order")}[self.how]


def seconds(value: float) -> str:
    """`12 s`, `3 min`, `2 h`."""
    if value < 90:
        return _("%(n)d s") % {"n": round(value)}
    return _("%(n)d min") % {"n": value // 60} if value < 5400 else _("%(n)d h") % {"n": value // 3600}


def capped(count: int) -> str:
    return f"{count:,}" if count <= COUNT_LIMIT else f"{COUNT_LIMIT:,}+"


def feed(tenant: str) -> list[State]:
    """Of one tenant's events. 4 queries by index."""
    unsent = AlertOutbox.objects.filter(published_at=None, tenant=tenant)
    oldest = unsent.order_by("id").values_list("created_at", flat=True).first()
    age = max(0.0, (now() - oldest).total_seconds()) if oldest else 0.0
    count = unsent.order_by()[: COUNT_LIMIT + 1].count()
    aside = set_aside(tenant=tenant).order_by()[: COUNT_LIMIT + 1].count()
    words = _("everything is sent")
    if count:
        words = _("%(n)s events wait, the oldest for %(time)s") % {"n": capped(count), "time": seconds(age)}
    how = BAD if age > settings.READY_MAX_OUTBOX_LAG else SLOW if age > 5 else GOOD
    found = [State(_("Live feed"), words, how, note=_("event no. %(seq)s") % {"seq": f"{head(tenant=tenant):,}"})]
    if aside:
        found.append(State(_("Damaged events"), _("%(n)s were not sent") % {"n": capped(aside)}, SLOW))
    return found


def storing(tenant: str, *, counts: bool) -> list[State]:
    """How far the database is behind Redis. counts: with how many wait, which are those of every tenant. 1 round trip
    to Redis; 1 query with counts."""
    label = _("Messages to the database")
    try:
        found = messages_waiting()
    except (RedisUnavailable, ResponseError):
        return [State(label, _("not known: Redis does not answer"), BAD)]
    words = _("everything is stored")
    if found.entries:
        words = _("the oldest waits for %(time)s") % {"time": seconds(found.age)}
        if counts:
            said = {"n": f"{found.entries:,}", "time": seconds(found.age)}
            words = _("%(n)s wait, the oldest for %(time)s") % said
    how = BAD if found.age > settings.READY_MAX_WORKER_LAG else SLOW if found.age > 5 else GOOD
    states = [State(label, words, how)]
    if counts:
        letters = waiting_letters(tenant=tenant, limit=COUNT_LIMIT + 1)
        words = _("%(n)s could not be stored") % {"n": capped(letters)} if letters else _("none")
        link = "admin:memory_messagedeadletter_changelist"
        states.append(State(_("Dead letters"), words, SLOW if letters else GOOD, link))
    return states


def sealing(tenant: str) -> list[State]:
    """Seals of the audit log, and how much was refused. 5 queries, by keys and an index."""
    found = seals_behind()
    late = found.age > settings.AUDIT_SEAL_LAG
    words = _("%(rows)s rows under %(seals)s seals") % {"rows": f"{found.sealed:,}", "seals": f"{found.seals:,}"}
    if late:
        said = {"n": f"{found.rows:,}", "time": seconds(found.age)}
        words = _("%(n)s rows are not sealed, the oldest for %(time)s") % said
    refused: Any = AuditLog.objects.filter(
        tenant=tenant, event_type=EventType.AUTHZ, at__gte=now() - timedelta(days=1)
    ).order_by()
    link = "admin:guard_auditlog_changelist"
    return [
        State(_("Audit seals"), words, SLOW if late else GOOD, link),
        State(_("Refused in 24 hours"), capped(refused[: COUNT_LIMIT + 1].count()), GOOD, link),
    ]
