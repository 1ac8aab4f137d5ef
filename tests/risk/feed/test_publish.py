"""From the outbox to Redis: in order, exactly as declared, and never lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from config.base import redis as base_redis
from config.base.clock import now
from config.base.redis import RedisUnavailable
from guard.access.masking import mask
from risk.alerts.models import AlertOutbox, EscalationLevel, RiskAlert
from risk.alerts.services import claim, sweep
from risk.feed import nudge, services
from risk.feed.events import tell_alert, tell_update
from risk.feed.keys import PUB_ALERT
from risk.feed.selectors import frames_after, set_aside
from risk.feed.services import publish
from tests.risk.alerts.people import DAY, make_hit, make_person, settle, the_alert

PAYLOAD = {"alert_id", "alert_type", "customer_id_mask", "risk_score", "trace_id", "notify_role"}


class Listener:
    """Someone at Redis."""

    def __init__(self, *channels: str) -> None:
        self.pubsub = base_redis.state().pubsub(ignore_subscribe_messages=True)
        self.pubsub.subscribe(*channels)
        for _ in channels:
            self.pubsub.get_message(timeout=2)

    def heard(self) -> list[tuple[str, dict]]:
        found, quiet = [], 0
        while quiet < 2:
            message = self.pubsub.get_message(timeout=0.1)
            if message is None:
                quiet += 1
            else:
                found.append((message["channel"], json.loads(message["data"])))
        return found


def rows() -> list[tuple[str, int | None, bool]]:
    return [(row.tenant, row.seq, row.published_at is not None) for row in AlertOutbox.objects.order_by("id")]


@pytest.mark.django_db
def test_an_alert_goes_to_everyone_and_an_update_to_the_feed_alone(own_redis_prefix) -> None:
    alerts, feed = f"{own_redis_prefix}:risk:pub:alert", f"{own_redis_prefix}:risk:pub:feed"
    listener = Listener(alerts, feed)
    settle(first := make_hit())
    settle(first, make_hit("T2"))

    assert publish() == services.PublishResult(stamped=2, published=2)

    alert = the_alert()
    payload = {
        "alert_id": alert.alert_id,
        "alert_type": "event",
        "customer_id_mask": "C0***7",
        "risk_score": 60,
        "trace_id": "a" * 32,
        "notify_role": ["risk_officer"],
        "alert_subtype": ["suitability_mismatch"],
    }
    update = {"alert_id": alert.alert_id, "status": "pending", "assignee": None, "level": None, "version": 2}
    assert listener.heard() == [
        (alerts, payload),
        (feed, {"tenant": "default", "seq": 1, "event": {"type": "alert", "alert": payload}}),
        (feed, {"tenant": "default", "seq": 2, "event": {"type": "update", **update}}),
    ]


@pytest.mark.django_db
def test_the_payload_has_the_declared_fields_and_no_other_ever() -> None:
    settle(make_hit())
    alert = the_alert()
    alert.payload = {"actor_id": "A001", "actor_type": "agent", "customer_id": "C0000017"}
    with transaction.atomic():
        for kind in ("event", "report", "pattern"):
            for level in EscalationLevel.values:
                for subtypes in ([], ["concentration"]):
                    alert.alert_type, alert.escalation_level, alert.subtypes = kind, level, subtypes
                    alert.advisor_id = "A0000042"
                    tell_alert(alert)
                    event = AlertOutbox.objects.latest("id").event
                    wanted = PAYLOAD | ({"alert_subtype"} if subtypes else set())
                    wanted |= {"escalation_level"} if level else set()
                    assert set(event) == wanted
                    assert event["customer_id_mask"] == ("A0***2" if kind == "pattern" else "C0***7")
                    both = level or kind == "pattern"
                    assert event["notify_role"] == (["risk_officer", "risk_manager"] if both else ["risk_officer"])
                    assert "C0000017" not in json.dumps(event)
        before = AlertOutbox.objects.count()
        alert.alert_type = "data_quality"
        tell_alert(alert)
        tell_update(alert)
        assert AlertOutbox.objects.count() == before


@pytest.mark.parametrize(
    ("value", "masked"),
    [("C0000017", "C0***7"), ("C001", "C0***1"), ("C01", "C***"), ("C1", "C***"), ("C", "***"), ("", "")],
)
def test_a_mask_keeps_two_and_one_and_never_all(value, masked) -> None:
    assert mask(value) == masked


@pytest.mark.django_db(transaction=True)
def test_an_event_without_the_transaction_of_its_change_is_refused() -> None:
    settle(make_hit())
    with pytest.raises(RuntimeError, match="in the transaction"):
        tell_update(the_alert())


@pytest.mark.django_db
def test_each_tenant_counts_for_itself_and_has_a_channel_of_its_own(own_redis_prefix) -> None:
    listener = Listener(f"{own_redis_prefix}:acme:risk:pub:alert", f"{own_redis_prefix}:risk:pub:feed")
    settle(make_hit())
    settle(make_hit(), tenant="acme")
    settle(make_hit(), make_hit("T2"), tenant="acme")
    publish()
    assert rows() == [("default", 1, True), ("acme", 1, True), ("acme", 2, True)]
    heard = listener.heard()
    assert [channel.removeprefix(own_redis_prefix) for channel, _ in heard] == [
        ":acme:risk:pub:alert", ":risk:pub:feed", ":risk:pub:feed", ":risk:pub:feed",
    ]  # fmt: skip
    assert [(m["tenant"], m["seq"]) for _, m in heard[1:]] == [("acme", 1), ("acme", 2), ("default", 1)]


@pytest.mark.django_db
def test_nothing_to_do_costs_one_query(django_assert_num_queries) -> None:
    with django_assert_num_queries(1):
        assert publish() == services.PublishResult()


@pytest.mark.django_db
def test_many_rows_go_out_in_batches_and_in_order(monkeypatch, own_redis_prefix) -> None:
    monkeypatch.setattr(services, "BATCH", 7)
    settle(make_hit())
    alert = the_alert()
    with transaction.atomic():
        for _ in range(29):
            tell_update(alert)
    listener = Listener(f"{own_redis_prefix}:risk:pub:feed")
    assert publish().published == 30
    assert [message["seq"] for _, message in listener.heard()] == list(range(1, 31))


@pytest.mark.django_db
@pytest.mark.parametrize("moment", ["before sending", "after sending"])
def test_a_publisher_that_dies_delivers_twice_rather_than_never(monkeypatch, own_redis_prefix, moment) -> None:
    settle(make_hit())
    listener = Listener(f"{own_redis_prefix}:risk:pub:feed")
    whole = services.deliver

    def die(client, batch) -> None:
        if moment == "after sending":
            whole(client, batch)
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "deliver", die)
    with pytest.raises(KeyboardInterrupt):
        publish()
    assert rows() == [("default", 1, False)]
    monkeypatch.setattr(services, "deliver", whole)
    assert publish() == services.PublishResult(stamped=0, published=1)
    heard = [message["seq"] for _, message in listener.heard()]
    assert heard == ([1, 1] if moment == "after sending" else [1])
    assert rows() == [("default", 1, True)]


@pytest.mark.django_db(transaction=True)
def test_publishers_at_once_send_each_row_once_and_in_order(own_redis_prefix, monkeypatch) -> None:
    monkeypatch.setattr(services, "BATCH", 5)
    listener = Listener(f"{own_redis_prefix}:risk:pub:feed")
    settle(make_hit())
    alert = the_alert()
    done, failures = threading.Event(), []

    def work() -> None:
        try:
            while not done.is_set():
                publish()
            publish()
        except Exception as error:  # told below
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        with transaction.atomic():
            tell_update(alert)
    done.set()
    for thread in threads:
        thread.join(60)
    publish()
    assert not failures
    assert [message["seq"] for _, message in listener.heard()] == list(range(1, 62))


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_a_row_that_commits_late_gets_a_late_number(own_redis_prefix) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: the order of ids is the order of commits")
    settle(make_hit())
    publish()
    alert = the_alert()
    written, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with transaction.atomic():
            tell_update(alert)
            written.set()
            go_on.wait(10)
        connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    written.wait(10)
    with transaction.atomic():
        tell_update(alert)  # a higher id, committed first
    publish()
    go_on.set()
    thread.join(10)
    publish()
    assert [seq for _tenant, seq, _sent in rows()] == [1, 3, 2]


@pytest.mark.django_db
def test_with_redis_away_rows_wait_and_go_when_it_is_back(own_redis_server) -> None:
    own_redis_server.kill()
    settle(make_hit())
    result = publish()
    assert (result.stamped, result.published, result.away) == (1, 0, True)
    assert rows() == [("default", 1, False)]
    with pytest.raises(SystemExit):
        call_command("publish_outbox")
    own_redis_server.start()
    base_redis.breaker.reset()
    call_command("publish_outbox", "--json")
    assert rows() == [("default", 1, True)]


@pytest.mark.django_db
def test_a_redis_that_hangs_costs_its_timeout_and_no_lock(own_redis_server, settings) -> None:
    settings.REDIS_TIMEOUT = 0.5
    base_redis.forget_clients()
    settle(make_hit())
    own_redis_server.pause()
    try:
        start = time.monotonic()
        assert publish().away
        assert time.monotonic() - start < 2
    finally:
        own_redis_server.resume()
    base_redis.breaker.reset()
    assert publish(at_once=True).published == 1


@pytest.mark.django_db
def test_while_redis_is_away_it_is_tried_less_and_less_often_and_rows_are_numbered(
    own_redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []
    at = [1000.0]

    def send(*, tenant: str) -> int:
        tries.append(at[0])
        raise RedisUnavailable("refused")

    with monkeypatch.context() as patch:
        patch.setattr(services, "send", send)
        patch.setattr(services.time, "monotonic", lambda: at[0])
        settle(make_hit())
        assert publish().stamped == 1
        while at[0] < 1030:
            at[0] += 0.05
            assert publish() == services.PublishResult(away=True)
        gaps = [after - before for before, after in pairwise(tries)]
        assert gaps[0] <= 0.15
        assert all(later >= 1.3 for later in gaps[5:]), "2 s less the jitter"
        assert max(gaps) <= services.BACKOFF_MOST + 0.1, "nobody waits longer for news"
        settle(make_hit("T2", customer="C2"))
        assert publish() == services.PublishResult(stamped=1, away=True)
    # by hand it is tried at once, and what succeeds is tried again at once
    call_command("publish_outbox")
    assert rows() == [("default", 1, True), ("default", 2, True)]
    settle(make_hit("T3", customer="C3"))
    assert publish().published == 1


@pytest.mark.django_db(transaction=True)
def test_settling_does_not_need_redis(own_redis_server) -> None:
    own_redis_server.kill()
    result = settle(make_hit())
    assert result.alerts_opened == 1
    assert RiskAlert.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_officers_and_escalations_do_not_need_redis(own_redis_server) -> None:
    settle(make_hit(score=60))
    own_redis_server.kill()
    claim(alert_id=the_alert().alert_id, officer=make_person("alice"))
    assert sweep(at=now() + timedelta(days=30)).level_2 == 1
    assert AlertOutbox.objects.filter(published_at=None).count() == 3


@pytest.mark.django_db(transaction=True)
def test_the_hint_is_set_after_the_commit_with_a_day_to_live(own_redis_prefix) -> None:
    name = f"{own_redis_prefix}:risk:dedup:C0000017:RISK-001:2026-03-02"
    with transaction.atomic():
        settle(make_hit())
        assert base_redis.state().get(name) is None
    assert base_redis.state().get(name) == the_alert().alert_id
    ttl: Any = base_redis.state().ttl(name)
    assert 86300 < ttl <= 86400
    base_redis.state().delete(name)
    assert settle(make_hit()).unchanged == 1, "emptied: nothing changes"


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_away_costs_the_officer_nothing(monkeypatch, own_redis_server) -> None:
    sent = threading.Event()

    def hang() -> None:
        sent.set()
        time.sleep(3)

    monkeypatch.setattr(nudge, "send", hang)
    officer = make_person("alice")
    settle(make_hit(at=DAY))
    assert sent.wait(2)
    start = time.monotonic()
    claim(alert_id=the_alert().alert_id, officer=officer)
    assert time.monotonic() - start < 1


def test_sending_to_a_dead_broker_does_not_raise(monkeypatch) -> None:
    from celery import current_app

    monkeypatch.setattr(current_app, "send_task", lambda *a, **k: (_ for _ in ()).throw(ConnectionError("refused")))
    assert nudge.send() is False


def test_a_failing_delivery_is_named(own_redis_server) -> None:
    own_redis_server.kill()
    with pytest.raises(RedisUnavailable):
        services.deliver(base_redis.state(), [services.Outgoing(1, "default", 1, "update")])


# --- damaged rows ---------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "alert_id": "A-1", "alert_type": "event", "customer_id_mask": "C0***7", "risk_score": 60, "trace_id": "a" * 32,
    "notify_role": ["risk_officer"],
}  # fmt: skip
UPDATE: dict[str, Any] = {"alert_id": "A-1", "status": "pending", "assignee": None, "level": None, "version": 2}
DAMAGE: dict[str, tuple[str, str]] = {
    "no JSON": ("alert", "{"),
    "null": ("alert", "null"),
    "a list": ("alert", "[1]"),
    "a text": ("update", '"C0000017"'),
    "nested": ("update", "[" * 50_000),
    "long": ("update", json.dumps({**UPDATE, "status": "x" * 70_000})),
    "a field more": ("alert", json.dumps({**GOOD, "customer_id": "C0000017"})),
    "a field more of an update": ("update", json.dumps({**UPDATE, "customer_id": "C0000017"})),
    "a field less": ("alert", json.dumps({"alert_id": "A-1"})),
    "an id that is whole": ("alert", json.dumps({**GOOD, "customer_id_mask": "C0000017"})),
    "a number as text": ("alert", json.dumps({**GOOD, "risk_score": "60"})),
    "no number": ("alert", json.dumps({**GOOD, "risk_score": float("nan")})),
    "half a pair": ("update", json.dumps({**UPDATE, "status": "\ud800"})),
    "a field of the frame's": ("update", json.dumps({**UPDATE, "type": "reset"})),
    "a kind that is none": ("zzz", json.dumps(GOOD)),
}


def damage(pk: int, kind: str, raw: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE alert_outbox SET event = %s, kind = %s WHERE id = %s", [raw, kind, pk])


@pytest.mark.django_db
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_row_is_set_aside_and_the_others_go_on(own_redis_prefix: str, what: str, caplog: Any) -> None:
    alerts, feed = f"{own_redis_prefix}:risk:pub:alert", f"{own_redis_prefix}:risk:pub:feed"
    settle(make_hit())
    alert = the_alert()
    with transaction.atomic():
        tell_update(alert)
    bad = AlertOutbox.objects.order_by("id").values_list("pk", flat=True)[0]
    damage(bad, *DAMAGE[what])
    other = RiskAlert(**{f.attname: getattr(alert, f.attname) for f in alert._meta.concrete_fields if not f.generated})
    other.tenant = "t2"
    with transaction.atomic():
        tell_alert(other)
    listener = Listener(alerts, feed, PUB_ALERT("t2"))

    assert publish() == services.PublishResult(stamped=3, published=2, set_aside=1)
    assert publish() == services.PublishResult(), "it is dealt with"

    heard = listener.heard()
    fed = [body for channel, body in heard if channel == feed and body["tenant"] == "default"]
    assert [(body["seq"], body["event"]["type"]) for body in fed] == [(1, "void"), (2, "update")]
    assert fed[0]["event"] == {"type": "void"}
    assert [set(body) - {"alert_subtype"} for channel, body in heard if channel != feed] == [PAYLOAD], "t2's"
    frames = frames_after(tenant="default", after=0)
    assert [(frame["seq"], frame["type"]) for frame in frames] == [(1, "void"), (2, "update")]
    assert frames[0] == {"type": "void", "seq": 1}
    stored = set_aside().values("pk", "set_aside_for").get()
    assert stored["pk"] == bad
    assert stored["set_aside_for"]
    assert "C0000017" not in stored["set_aside_for"] + caplog.text
    assert f"row {bad} of the outbox is set aside" in caplog.text


@pytest.mark.django_db
def test_what_was_set_aside_is_told_again_as_the_alert_now_stands(capsys: Any) -> None:
    settle(make_hit())
    settle(make_hit("T2", customer="C2"))
    gone, bad = AlertOutbox.objects.order_by("id")
    for row in (gone, bad):
        damage(row.pk, "alert", "{")
    AlertOutbox.objects.filter(pk=gone.pk).update(alert_id="none-such")
    with pytest.raises(SystemExit):
        call_command("publish_outbox")
    assert "2 rows are damaged" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call_command("publish_outbox", "--retry", "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["resent"], told["unknown"], told["published"], told["left_aside"]) == (1, 1, 1, 1)
    frames = frames_after(tenant="default", after=0)
    assert [(frame["seq"], frame["type"]) for frame in frames] == [(1, "void"), (2, "void"), (3, "alert")]
    assert frames[2]["alert"]["alert_id"] == bad.alert_id
    assert services.resend_set_aside() == services.Resent(unknown=1), "once"


@pytest.mark.django_db
def test_what_is_damaged_after_it_was_sent_stops_no_replay() -> None:
    settle(make_hit())
    settle(make_hit("T2", customer="C2"))
    assert publish().published == 2
    damage(AlertOutbox.objects.order_by("id").values_list("pk", flat=True)[0], "alert", "{")
    assert [frame["type"] for frame in frames_after(tenant="default", after=0)] == ["void", "alert"]


@pytest.mark.django_db(transaction=True)
def test_a_publisher_that_hangs_in_one_tenant_keeps_no_other_waiting(own_redis_prefix: str) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database locks no rows")
    settle(make_hit())
    alert = the_alert()
    alert.tenant = "t2"
    with transaction.atomic():
        tell_alert(alert)
    publish()
    alert.tenant = "default"
    for tenant in ("default", "t2"):
        alert.tenant = tenant
        with transaction.atomic():
            tell_update(alert)
    locked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            services._lock_head("default")
            locked.set()
            go_on.wait(10)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(10)
    start = time.monotonic()
    result = publish()
    took = time.monotonic() - start
    go_on.set()
    thread.join(10)
    assert (result.published, result.busy, result.failed) == (1, 1, 0)
    assert took < 2
    assert list(AlertOutbox.objects.filter(published_at=None).values_list("tenant", flat=True)) == ["default"]
    assert publish().published == 1


@pytest.mark.django_db
def test_a_tenant_that_fails_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    settle(make_hit())
    alert = the_alert()
    alert.tenant = "t2"
    with transaction.atomic():
        tell_alert(alert)
    really = services.stamp

    def stamp(*, tenant: str) -> int:
        if tenant == "default":
            raise KeyError("a fault of ours")
        return really(tenant=tenant)

    monkeypatch.setattr(services, "stamp", stamp)
    assert publish() == services.PublishResult(stamped=1, published=1, failed=1)


def test_a_process_that_ends_sends_its_nudge_first() -> None:
    """And ends in bounded time where the broker takes nothing."""
    code = (
        "import time\nfrom risk.feed import nudge\n"
        "def send():\n    time.sleep({})\n    print('sent', flush=True)\n    return True\n"
        "nudge.send = send\nnudge.nudge_publisher()\n"
    )
    for slow, said in ((0.3, "sent\n"), (30, "")):
        start = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", code.format(slow)], capture_output=True, text=True, check=True)
        assert ended.stdout == said
        assert time.monotonic() - start < 15


def test_the_poll_leaves_a_margin_where_the_nudge_is_lost(settings: Any) -> None:
    assert settings.CELERY_BEAT_SCHEDULE["publish-outbox"]["schedule"] <= 0.5


@pytest.mark.django_db
def test_a_look_that_finds_nothing_is_one_query(django_assert_num_queries: Any) -> None:
    settle(make_hit())
    publish()
    with django_assert_num_queries(1):
        publish()
