"""From deliveries to the far ends: claim, send, say what became of it.

1. `claim` gives a channel to one worker, with a lease, and then one of its deliveries, both by conditional updates that
   must change their row. More than `per_minute` within a minute are folded into one summary. Commit.
2. The message is sent, outside of any transaction, and not begun once the lease is nearly over.
3. `settle` marks the delivery, with its audit row, if the lease is still this worker's.

A worker that dies between 1 and 3 leaves a row `sending`. When its lease is over, `release_dead` makes a webhook's
waiting again (the event id is the same, whoever has it drops the second) and any other `unknown`: perhaps it arrived,
and an operator decides. So nothing but webhooks is sent twice by us.
A far end that fails is left alone for a while, 5 s doubled up to 15 minutes or as long as it asks for, and all that
waits for it waits with it: it costs one try a pause, and other channels get their turn.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from datetime import time as clock_time
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.ids import new_id
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.notify.messages import digest_body
from risk.notify.models import ChannelKind, DeliveryState, NotifyChannel, NotifyDelivery
from risk.notify.outcomes import Outcome, Verdict
from risk.notify.sealing import SecretLost, unseal
from risk.notify.senders import Parcel, send

WINDOW = 60.0  # seconds that `per_minute` counts over
SPARE = 30.0  # seconds of a lease beyond a try's longest
BACKOFF_FIRST, BACKOFF_MOST = 5.0, 900.0
MOST_FOLDED = 5_000  # deliveries of one summary
CHUNK = 500
CANDIDATES = 50  # channels that are looked at for one claim
ACTOR = "risk.notify"


@dataclass(frozen=True)
class Claim:
    """A delivery that is this worker's. began: time.monotonic() from before the lease."""

    parcel: Parcel
    channel_id: str
    tenant: str
    token: str
    sealed: str
    began: float

    @property
    def until(self) -> float:
        """No message is begun after this, so that its try ends well before the lease does."""
        return self.began + SPARE / 3


class _Lost(Exception):
    """Somebody else was first; what was written in this transaction goes with it."""


def work(*, seconds: float = 0.0) -> int:
    """Sends what is due, channel by channel in turn, until nothing is or the time is over. Returns how many tries.

    Always tries one, where one is due. Errors: the database's.
    """
    until = time.monotonic() + seconds
    tries = 0
    release_dead()
    while (one := claim()) is not None:
        settle(one, deliver(one))
        tries += 1
        if time.monotonic() >= until:
            break
    return tries


def deliver(one: Claim) -> Outcome:
    """Step 2. No transaction is open. No errors."""
    try:
        secrets = unseal(channel_id=one.channel_id, sealed=one.sealed)
    except SecretLost:
        return Outcome(Verdict.NEVER, "SECRET_LOST")
    return send(one.parcel, secrets, until=one.until)


# --- claiming ---------------------------------------------------------------------------------------------------


def claim() -> Claim | None:
    """Step 1: the next delivery, of the channel that was served longest ago. None: nothing is due, or it is others'."""
    moment = now()
    due = NotifyDelivery.objects.filter(channel=OuterRef("pk"), state=DeliveryState.WAITING, next_at__lte=moment)
    channels = _free(moment).filter(Exists(due)).order_by("served_at", "pk")
    for channel in channels[:CANDIDATES]:
        taken = retry_conflicts(lambda channel=channel: _claim(channel))  # type: ignore[misc]
        if taken is not None:
            return taken
    return None


def _free(moment: datetime) -> QuerySet[NotifyChannel]:
    rows = NotifyChannel.objects.filter(enabled=True).filter(Q(busy_until=None) | Q(busy_until__lte=moment))
    return rows.filter(Q(not_before=None) | Q(not_before__lte=moment))


def _claim(channel: NotifyChannel) -> Claim | None:
    began, moment, token = time.monotonic(), now(), new_id()
    lease = moment + timedelta(seconds=settings.NOTIFY_SECONDS + SPARE)
    due = NotifyDelivery.objects.filter(channel=channel, state=DeliveryState.WAITING, next_at__lte=moment)
    if is_quiet(channel, moment):
        due = due.filter(rank__lt=2)
        if not due.exists():
            return None
    try:
        with transaction.atomic():
            got = _free(moment).filter(pk=channel.pk).update(busy_until=lease, busy_token=token, served_at=moment)
            if not got:
                return None
            chosen = _choose(channel, due, moment)
            if chosen is None:
                NotifyChannel.objects.filter(pk=channel.pk).update(busy_until=None)
                return None
            mine = {"state": DeliveryState.SENDING, "token": token, "lease_until": lease, "tried_at": moment}
            claimed = NotifyDelivery.objects.filter(pk=chosen, state=DeliveryState.WAITING)
            if claimed.update(attempts=F("attempts") + 1, **mine) != 1:
                raise _Lost
            row = NotifyDelivery.objects.select_related("channel").get(pk=chosen)
    except _Lost:
        return None
    where = row.channel
    parcel = Parcel(
        delivery_id=row.pk, kind=row.kind, seq=row.seq, body=row.body, attempt=row.attempts,
        channel_kind=where.kind, language=where.language, options=where.options,
    )  # fmt: skip
    return Claim(parcel, where.pk, row.tenant, token, where.sealed, began)


def is_quiet(channel: NotifyChannel, moment: datetime) -> bool:
    """Whether only what is critical goes there now. In BUSINESS_TIME_ZONE; over midnight too."""
    begin, end = channel.quiet_from, channel.quiet_to
    if begin is None or end is None or begin == end:
        return False
    local: clock_time = moment.astimezone(ZoneInfo(settings.BUSINESS_TIME_ZONE)).time()
    return begin <= local < end if begin < end else local >= begin or local < end


def _choose(channel: NotifyChannel, due: QuerySet[NotifyDelivery], moment: datetime) -> str | None:
    """The delivery to send: the most urgent, or a summary of all of them where they are more than may still go."""
    ordered = due.order_by("rank", "next_at", "pk")
    if not channel.per_minute:
        return ordered.values_list("pk", flat=True).first()
    since = moment - timedelta(seconds=WINDOW)
    tried = NotifyDelivery.objects.filter(channel=channel, tried_at__gt=since).order_by("tried_at")
    times = list(tried.values_list("tried_at", flat=True)[: channel.per_minute])
    left = channel.per_minute - len(times)
    if left <= 0:
        # It is looked at again when the oldest of them is a minute old.
        NotifyChannel.objects.filter(pk=channel.pk).update(not_before=(times[0] or moment) + timedelta(seconds=WINDOW))
        return None
    first = list(ordered.values_list("pk", flat=True)[: left + 1])
    if left > 1 or len(first) <= left:
        return first[0] if first else None
    return _fold(channel, due, moment) or first[0]


def _fold(channel: NotifyChannel, due: QuerySet[NotifyDelivery], moment: datetime) -> str | None:
    """A summary in place of what waits, made in the transaction that takes its members. What may have arrived already,
    and what was folded before, is not folded. None: there are no two. Errors: _Lost."""
    foldable = due.filter(kind=NotifyDelivery.Kind.ALERT, uncertain=False).order_by("rank", "seq")
    members = list(foldable.values_list("pk", "body", "rank")[:MOST_FOLDED])
    if len(members) < 2:
        return None
    digest = NotifyDelivery.objects.create(
        tenant=channel.tenant, channel=channel, kind=NotifyDelivery.Kind.DIGEST, rank=members[0][2], next_at=moment,
        body=digest_body([body for _pk, body, _rank in members]),
    )  # fmt: skip
    folded = {"state": DeliveryState.FOLDED, "digest": digest, "done_at": moment}
    for start in range(0, len(members), CHUNK):
        pks = [pk for pk, _body, _rank in members[start : start + CHUNK]]
        if NotifyDelivery.objects.filter(pk__in=pks, state=DeliveryState.WAITING).update(**folded) != len(pks):
            raise _Lost
    return digest.pk


# --- settling ---------------------------------------------------------------------------------------------------


def settle(one: Claim, outcome: Outcome) -> None:
    """Step 3. What a worker says whose lease was over counts where nobody sent it since: then it is not `unknown` any
    more. Errors: the database's; then the row ends as if this worker had died."""
    retry_conflicts(lambda: _settle(one, outcome))


def _settle(one: Claim, outcome: Outcome) -> None:
    moment = now()
    with transaction.atomic():
        mine = NotifyDelivery.objects.filter(pk=one.parcel.delivery_id, token=one.token)
        row = mine.select_for_update().filter(state__in=(DeliveryState.SENDING, DeliveryState.UNKNOWN)).first()
        if row is not None:
            _mark(row, outcome, moment)
        failed = outcome.verdict is not Verdict.SENT
        # Another one's by now, where the lease was over.
        channel = NotifyChannel.objects.filter(pk=one.channel_id, busy_token=one.token)
        if not failed:
            channel.update(busy_until=None, failures=0, not_before=None)
        else:
            failures = (channel.values_list("failures", flat=True).first() or 0) + 1
            pause = max(outcome.wait, backoff(failures))
            channel.update(busy_until=None, failures=failures, not_before=moment + timedelta(seconds=pause))


def _mark(row: NotifyDelivery, outcome: Outcome, moment: datetime) -> None:
    state = {
        Verdict.SENT: DeliveryState.SENT,
        Verdict.NEVER: DeliveryState.FAILED,
        Verdict.UNKNOWN: DeliveryState.UNKNOWN,
        Verdict.AGAIN: DeliveryState.WAITING,
    }[outcome.verdict]
    if state is DeliveryState.WAITING and (
        row.attempts >= settings.NOTIFY_ATTEMPTS or row.state == DeliveryState.UNKNOWN
    ):
        state = DeliveryState.FAILED
    over = state is not DeliveryState.WAITING
    wait = max(outcome.wait, backoff(row.attempts))
    NotifyDelivery.objects.filter(pk=row.pk).update(
        state=state,
        code=outcome.code,
        status=outcome.status,
        lease_until=None,
        next_at=row.next_at if over else moment + timedelta(seconds=wait),
        done_at=moment if over else None,
        uncertain=row.uncertain or outcome.perhaps,
    )
    if over:
        _tell(row, state, outcome.code, outcome.status)


def _tell(row: NotifyDelivery, state: str, code: str, status: int | None) -> None:
    told: dict[str, Any] = {"channel": row.channel_id, "kind": row.kind, "state": state, "tries": row.attempts}  # type: ignore[attr-defined]
    told |= {name: value for name, value in (("seq", row.seq), ("alert", row.alert_id), ("status", status)) if value}
    if row.kind == NotifyDelivery.Kind.DIGEST:
        told["events"] = row.body.get("events")
    record(
        tenant=row.tenant,
        event_type=EventType.NOTIFICATION,
        decision=Decision.SENT if state == DeliveryState.SENT else Decision.FAILED,
        actor_type=ActorType.SYSTEM,
        actor_id=ACTOR,
        object_type="notify_delivery",
        object_id=row.pk,
        code=code,
        trace_id=row.trace_id or None,
        input_summary=told,
    )


def backoff(failures: int) -> float:
    """Seconds, with jitter of a quarter either way: channels that failed together do not come back together."""
    wait = min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(20, max(0, failures - 1)))
    return wait * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret


def release_dead() -> int:
    """Ends what dead workers have left: see above. Returns how many rows. 1 query where there are none."""
    over = NotifyDelivery.objects.filter(state=DeliveryState.SENDING, lease_until__lte=now())
    found = list(over.order_by("lease_until").values_list("pk", "token")[:CHUNK])
    for pk, token in found:
        retry_conflicts(lambda pk=pk, token=token: _release(pk, token))  # type: ignore[misc]
    return len(found)


def _release(pk: str, token: str) -> None:
    moment = now()
    with transaction.atomic():
        mine = NotifyDelivery.objects.filter(pk=pk, token=token, state=DeliveryState.SENDING, lease_until__lte=moment)
        row = mine.select_for_update().first()
        if row is None:
            return
        again = row.channel.kind == ChannelKind.WEBHOOK and row.attempts < settings.NOTIFY_ATTEMPTS
        changes: dict[str, Any] = {"lease_until": None, "code": "WORKER_LOST", "uncertain": True}
        if again:
            changes |= {"state": DeliveryState.WAITING, "next_at": moment}
        else:
            changes |= {"state": DeliveryState.UNKNOWN, "done_at": moment}
        if mine.update(**changes) and not again:
            _tell(row, DeliveryState.UNKNOWN, "WORKER_LOST", None)
