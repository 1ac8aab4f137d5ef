"""Once for one event and channel: two workers, dead ones, slow ones, late commits."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.alerts.models import AlertOutbox
from risk.feed.services import stamp
from risk.notify import dispatch
from risk.notify.dispatch import claim, deliver, release_dead, settle, work
from risk.notify.following import follow
from risk.notify.models import NotifyChannel, NotifyCursor, NotifyDelivery
from tests.dying import Killed, dies_at
from tests.risk.notify.far_end import FarEnd, Reply, far_end
from tests.risk.notify.make import at_once, make_channel, open_the_way, payload, states, tell
from tests.threads import Threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def there(settings: Any) -> Iterator[FarEnd]:
    with far_end() as server:
        open_the_way(settings, server.url)
        yield server


def ids(there: FarEnd) -> Counter[str]:
    return Counter(got.headers["X-Xinghuo-Event-Id"] for got in there.got)


def test_two_workers_send_each_event_once(there: FarEnd) -> None:
    for _ in range(3):
        make_channel("webhook", there.url)
    tell(*[payload() for _ in range(20)])

    def go() -> None:
        follow()
        work(seconds=20)

    assert Threads(4, go).end() == [None] * 4
    work(seconds=20)
    assert states() == {"sent": 60}
    assert ids(there).most_common(1)[0][1] == 1
    assert len(there.got) == 60
    assert AuditLog.objects.filter(event_type="notification", decision="sent").count() == 60


def test_two_workers_at_one_row(there: FarEnd) -> None:
    make_channel("dingtalk", there.url)
    tell()
    follow()
    claims = Threads(8, claim).end()
    mine = [one for one in claims if one is not None]
    assert len(mine) == 1, claims
    settle(mine[0], deliver(mine[0]))
    assert (len(there.got), states()) == (1, {"sent": 1})


def test_many_readers_make_each_delivery_once(there: FarEnd) -> None:
    make_channel("webhook", there.url)
    tell(*[payload() for _ in range(700)])
    answers = Threads(4, follow).end()
    answers.append(follow())  # who finds the place taken leaves it to the next tick
    assert sum(answers) == 700, answers
    assert NotifyDelivery.objects.count() == 700
    assert NotifyCursor.objects.get().seq == 700


def test_the_database_refuses_a_second_delivery(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url)
    tell()
    follow()
    with pytest.raises(IntegrityError), transaction.atomic():
        NotifyDelivery.objects.create(channel=channel, seq=1)
    NotifyCursor.objects.update(seq=0)  # somebody sets the place back
    assert follow() == 0
    assert NotifyDelivery.objects.count() == 1


def test_a_late_commit_is_not_skipped(there: FarEnd) -> None:
    """Its row is older than what was told meanwhile; its number is not."""
    make_channel("webhook", there.url)
    begun, may_end = threading.Event(), threading.Event()

    def late() -> None:
        with transaction.atomic():
            one = payload()
            AlertOutbox.objects.create(kind="alert", tenant="default", alert_id=one["alert_id"], event=one)
            begun.set()
            may_end.wait(20)
        connections.close_all()

    if connections["default"].vendor == "sqlite":
        pytest.skip("one writer at a time: nothing is committed late")
    thread = threading.Thread(target=late)
    thread.start()
    begun.wait(20)
    tell()
    assert follow() == 1
    may_end.set()
    thread.join(20)
    stamp(tenant="default")
    assert follow() == 1
    assert NotifyDelivery.objects.filter(seq__in=[1, 2]).count() == 2


def test_a_reader_that_dies_at_any_statement_loses_and_doubles_nothing(there: FarEnd) -> None:
    make_channel("webhook", there.url)
    rounds = 0
    while True:
        rounds += 1
        tell()
        died = dies_at(rounds, follow)
        follow()
        assert NotifyDelivery.objects.count() == rounds
        if not died:
            break
    assert rounds > 6


def dies_at_line(number: int, task: Callable[[], Any]) -> bool:
    """The work in a thread that ends at that line of the room's code (1: the first). Whether it came so far."""
    left = [number]
    died: list[bool] = []

    def trace(frame: Any, event: str, _arg: Any) -> Any:
        if "/risk/notify/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] <= 0:
                left[0] = sys.maxsize
                raise Killed
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            task()
        except Killed:
            died.append(True)
        finally:
            sys.settrace(None)
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return bool(died)


@pytest.mark.slow  # a worker is killed at each of some hundred lines
@pytest.mark.parametrize("kind", ["webhook", "dingtalk"])
def test_a_worker_killed_between_any_two_lines(there: FarEnd, kind: str) -> None:
    """A robot hears of an event once at most, and what is not known is said; a webhook once at least, with one id."""
    make_channel(kind, there.url)
    tell()
    follow()
    work()  # what is imported late is there
    line, unknown = 0, 0
    while True:
        line += 7  # none of them lies far from a statement of the database
        before = len(there.got)
        tell()
        follow()
        row = NotifyDelivery.objects.latest("seq")
        died = dies_at_line(line, work)
        at_once()
        work(seconds=10)
        row.refresh_from_db()
        heard = len(there.got) - before
        if kind == "webhook":
            assert heard >= 1
            assert row.state == "sent"
            assert {got.headers["X-Xinghuo-Event-Id"] for got in there.got[before:]} == {row.pk}
        else:
            assert heard <= 1, line
            assert row.state in ("sent", "unknown"), line
            assert heard == 1 or row.state == "unknown", line
            unknown += row.state == "unknown"
        rows = AuditLog.objects.filter(event_type="notification", object_id=row.pk)
        assert rows.count() == 1, line
        assert (rows[0].decision == "sent") == (row.state == "sent")
        if not died:
            break
    assert line > 60
    assert kind == "webhook" or unknown > 5


def test_a_worker_killed_at_any_statement_leaves_a_row_that_somebody_ends(there: FarEnd) -> None:
    make_channel("wecom", there.url)
    rounds = 0
    while True:
        rounds += 1
        tell()
        follow()
        died = dies_at(rounds, work)
        at_once()
        work(seconds=10)
        assert set(states()) <= {"sent", "unknown"}
        assert len(there.got) <= rounds
        if not died:
            break
    assert rounds > 8


def test_a_slow_worker_whose_lease_was_over_sends_nothing_any_more(
    there: FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel("dingtalk", there.url)
    tell()
    follow()
    monkeypatch.setattr(dispatch, "SPARE", 0.0)  # its time to begin is over at once
    mine = claim()
    assert mine is not None
    outcome = deliver(mine)
    assert (outcome.code, outcome.verdict) == ("TOO_LATE", "again")
    assert there.got == []


def test_a_worker_that_was_given_up_and_had_sent_says_so_late(there: FarEnd) -> None:
    make_channel("dingtalk", there.url)
    tell()
    follow()
    mine = claim()
    assert mine is not None
    outcome = deliver(mine)
    NotifyDelivery.objects.update(lease_until=now() - timedelta(seconds=1))
    assert release_dead() == 1
    assert states() == {"unknown": 1}
    settle(mine, outcome)
    assert states() == {"sent": 1}
    assert len(there.got) == 1


def test_two_workers_at_a_webhook_whose_first_one_hung(there: FarEnd) -> None:
    """The first one's word comes after the second has it: it does not count, and nothing is marked twice."""
    channel = make_channel("webhook", there.url)
    tell()
    follow()
    first = claim()
    assert first is not None
    at_once()
    release_dead()
    second = claim()
    assert second is not None
    assert second.parcel.delivery_id == first.parcel.delivery_id
    settle(first, deliver(first))
    assert states() == {"sending": 1}
    assert NotifyChannel.objects.get(pk=channel.pk).busy_token == second.token
    settle(second, deliver(second))
    assert states() == {"sent": 1}
    assert AuditLog.objects.filter(event_type="notification").count() == 1
    assert set(ids(there).values()) == {2}


def test_a_broken_connection_after_the_message_is_not_known(there: FarEnd) -> None:
    make_channel("feishu", there.url)
    hook = make_channel("webhook", there.url)
    there.reply = Reply(cut=True)
    tell()
    follow()
    work(seconds=20)
    assert states() == {"unknown": 1, "waiting": 1}
    there.reply = Reply()
    at_once()
    work(seconds=20)
    assert states() == {"unknown": 1, "sent": 1}
    sent = NotifyDelivery.objects.get(channel=hook)
    assert ids_of(there, sent.pk) == 2


def ids_of(there: FarEnd, delivery_id: str) -> int:
    return sum(got.headers.get("X-Xinghuo-Event-Id") == delivery_id for got in there.got)
