"""Rules, bursts, quiet hours, and far ends that hold up nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.alerts.models import AlertOutbox
from risk.feed.services import publish
from risk.notify import dispatch
from risk.notify.dispatch import is_quiet, work
from risk.notify.following import follow
from risk.notify.models import NotifyChannel, NotifyCursor, NotifyDelivery, NotifyRule
from risk.notify.selectors import standing
from risk.notify.services import Entered, reseal_all, save_channel, save_rule, send_again
from tests.risk.notify.far_end import FarEnd, Reply, far_end
from tests.risk.notify.make import SECRET, at_once, make_channel, open_the_way, payload, states, tell

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def there(settings: Any) -> Iterator[FarEnd]:
    with far_end() as server:
        open_the_way(settings, server.url)
        yield server


def test_a_rule_names_band_level_type_and_role(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url, rule=False)
    rule = save_rule(rule=NotifyRule(channel=channel), by="test")
    low, medium, high = payload(39), payload(40), payload(79)
    levelled = payload(60, escalation_level="LEVEL_1", notify_role=["risk_officer", "risk_manager"])
    conduct = payload(75, alert_type="pattern", notify_role=["risk_officer", "risk_manager"])
    taken: list[set[str]] = []
    for fields in (
        {},
        {"least_band": "high"},
        {"least_level": "LEVEL_1"},
        {"alert_type": "pattern"},
        {"role": "risk_manager"},
        {"enabled": False},
    ):
        NotifyDelivery.objects.all().delete()
        defaults = {"least_band": "medium", "least_level": "", "alert_type": "", "role": "", "enabled": True}
        NotifyRule.objects.update(**{**defaults, **fields})
        tell(low, medium, high, levelled, conduct)
        follow()
        taken.append(set(NotifyDelivery.objects.values_list("alert_id", flat=True)))
    names = {one["alert_id"]: name for name, one in (
        ("low", low), ("medium", medium), ("high", high), ("levelled", levelled), ("conduct", conduct))}  # fmt: skip
    assert [{names[one] for one in some} for some in taken] == [
        {"medium", "high", "levelled", "conduct"},
        {"high", "levelled", "conduct"},
        {"levelled"},
        {"conduct"},
        {"levelled", "conduct"},
        set(),
    ]
    assert rule.least_band == "medium", "of low scores nothing is told unless somebody says so"


def test_two_rules_of_one_channel_tell_it_once_and_another_tenant_nothing(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url)
    NotifyRule.objects.create(channel=channel, least_band="low")
    make_channel("webhook", there.url, tenant="other")
    tell()
    assert follow() == 1


def test_what_was_before_a_rule_is_not_told(there: FarEnd) -> None:
    tell()
    make_channel("webhook", there.url)
    assert follow() == 0
    tell()
    assert follow() == 1


def test_updates_and_damaged_rows_are_passed_over(there: FarEnd) -> None:
    make_channel("webhook", there.url)
    AlertOutbox.objects.create(kind="update", tenant="default", alert_id="a", event={"alert_id": "a"})
    AlertOutbox.objects.create(kind="alert", tenant="default", alert_id="a", event={"customer_id": "C00017"})
    tell()
    assert follow() == 1
    assert NotifyCursor.objects.get().seq == 3


def test_a_thousand_alerts_at_once_are_twenty_messages(there: FarEnd) -> None:
    make_channel("dingtalk", there.url, per_minute=20)
    critical = [payload(95) for _ in range(5)]
    tell(*[payload(65) for _ in range(995)], *critical)
    assert follow() == 1000
    work(seconds=30)
    assert len(there.got) == 20
    assert states() == {"sent": 20, "folded": 981}
    texts = [got.json["text"]["content"] for got in there.got]
    assert all("score 95" in text for text in texts[:5]), "the critical ones first, and each by itself"
    assert "981 alerts, in summary" in texts[-1]
    assert len(texts[-1].encode()) < 2048
    digest = NotifyDelivery.objects.get(kind="digest")
    assert digest.body["bands"] == {"high": 981}
    assert digest.members.count() == 981
    assert AuditLog.objects.filter(event_type="notification").count() == 20
    # And what comes within the same minute waits for it to be over.
    tell(payload(), payload())
    follow()
    work(seconds=5)
    assert len(there.got) == 20
    at_once()
    NotifyDelivery.objects.filter(tried_at__isnull=False).update(tried_at=now() - timedelta(seconds=61))
    work(seconds=5)
    assert len(there.got) == 22


def test_four_workers_at_a_burst_keep_to_the_number(there: FarEnd) -> None:
    from tests.threads import Threads

    make_channel("dingtalk", there.url, per_minute=5)
    tell(*[payload() for _ in range(200)])
    follow()

    def go() -> None:
        for _ in range(20):
            work(seconds=1)

    assert Threads(4, go).end() == [None] * 4
    assert len(there.got) == 5
    assert states() == {"sent": 5, "folded": 196}


def test_quiet_hours_are_not_for_what_is_critical(there: FarEnd) -> None:
    local = (now() + timedelta(hours=8)).time()
    begin = (now() + timedelta(hours=7)).time().replace(microsecond=0)
    end = (now() + timedelta(hours=9)).time().replace(microsecond=0)
    channel = make_channel("dingtalk", there.url, quiet_from=begin, quiet_to=end)
    assert is_quiet(channel, now()), local
    tell(payload(65), payload(85), payload(50, escalation_level="LEVEL_2"))
    follow()
    work(seconds=10)
    assert len(there.got) == 2
    assert standing().late == 0
    NotifyChannel.objects.update(quiet_from=end, quiet_to=begin)  # the other hours
    work(seconds=10)
    assert len(there.got) == 3


def test_a_channel_that_hangs_holds_up_no_other_and_not_the_feed(there: FarEnd, settings: Any) -> None:
    settings.NOTIFY_SECONDS = 2.0
    with far_end() as hanging:
        hanging.reply = Reply(hang=True)
        make_channel("webhook", hanging.url)
        make_channel("webhook", there.url)
        tell(*[payload() for _ in range(10)], stamped=False)
        began = time.monotonic()
        assert publish().published == 10
        assert time.monotonic() - began < 2
        follow()
        work(seconds=20)
        assert len(there.got) == 10
        assert len(hanging.got) == 1, "it is tried once a pause, however much waits"
        assert time.monotonic() - began < 10
    assert standing().waiting == 10
    assert standing().late == 0, "a pause is no delay of ours"


def test_two_workers_beside_a_far_end_that_hangs(there: FarEnd, settings: Any) -> None:
    """One of them waits there; the other goes on."""
    settings.NOTIFY_SECONDS = 8.0
    with far_end() as hanging:
        hanging.reply = Reply(hang=True)
        slow = make_channel("webhook", hanging.url)
        tell()
        follow()
        thread = threading.Thread(target=lambda: work())
        thread.start()
        assert hanging.arrived.acquire(timeout=10)
        make_channel("webhook", there.url)
        tell(payload(), payload())
        follow()
        began = time.monotonic()
        work(seconds=5)
        assert time.monotonic() - began < 5
        assert len(there.got) == 2
        assert len(hanging.got) == 1, "and nobody else waits there"
        hanging.over.set()
        thread.join(20)
        assert not thread.is_alive()
    slow.refresh_from_db()
    assert slow.busy_until is None


def test_a_pause_grows_and_ends_with_the_first_success(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url)
    there.reply = Reply(500)
    tell()
    follow()
    pauses = []
    for _ in range(4):
        at_once()
        work()
        channel.refresh_from_db()
        assert channel.not_before is not None
        pauses.append((channel.not_before - now()).total_seconds())
    assert 3 < pauses[0] < 7
    assert 25 < pauses[3] < 51
    assert max(dispatch.backoff(1000) for _ in range(50)) <= 900 * 1.25
    there.reply = Reply()
    at_once()
    work()
    channel.refresh_from_db()
    assert (channel.failures, channel.not_before) == (0, None)


def test_what_was_given_up_is_sent_again_by_a_person(there: FarEnd, settings: Any) -> None:
    settings.NOTIFY_ATTEMPTS = 1
    make_channel("dingtalk", there.url)
    there.replies = [Reply(500), Reply(cut=True)]
    tell(payload(), payload())
    follow()
    work(seconds=5)
    at_once()
    work(seconds=5)
    assert states() == {"failed": 1, "unknown": 1}
    assert (standing().failed, standing().unknown) == (1, 1)
    pks = list(NotifyDelivery.objects.values_list("pk", flat=True))
    assert send_again(tenant="other", delivery_ids=pks, by="test") == 0
    assert send_again(tenant="default", delivery_ids=pks, by="test") == 2
    assert send_again(tenant="default", delivery_ids=pks, by="test") == 0
    work(seconds=5)
    assert states() == {"sent": 2}
    assert AuditLog.objects.filter(event_type="dead_letter", decision="retried").count() == 2


def test_a_channel_out_of_use_gives_up_what_waits(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url)
    tell()
    follow()
    channel.enabled = False
    save_channel(channel=channel, entered=Entered(), by="test")
    work()
    assert states() == {"failed": 1}
    assert NotifyDelivery.objects.get().code == "CHANNEL_OFF"
    assert there.got == []
    tell()
    assert follow() == 0


def test_keys_rotate_and_a_lost_one_is_said(there: FarEnd, settings: Any) -> None:
    channel = make_channel("webhook", there.url)
    assert SECRET not in channel.sealed
    settings.NOTIFY_SECRET_KEYS = [("new", b"n" * 32)]
    tell()
    follow()
    work()
    assert states() == {"sent": 1}, "what the former key has sealed is still opened"
    assert reseal_all() == (1, 0)
    settings.SECRET_KEY = "another"
    tell()
    follow()
    work()
    assert states() == {"sent": 2}
    settings.NOTIFY_SECRET_KEYS = [("newer", b"m" * 32)]
    assert standing().lost == 1
    assert reseal_all() == (0, 1)
    tell()
    follow()
    at_once()
    work()
    assert NotifyDelivery.objects.get(state="failed").code == "SECRET_LOST"
    channel.refresh_from_db()
    save_channel(channel=channel, entered=Entered(address=f"{there.url}/hook", secret=SECRET), by="test")
    assert standing().lost == 0


def test_another_channels_secrets_do_not_open_here(there: FarEnd) -> None:
    one, other = make_channel("webhook", there.url), make_channel("webhook", there.url)
    NotifyChannel.objects.filter(pk=one.pk).update(sealed=other.sealed)
    tell()
    follow()
    work(seconds=5)
    assert NotifyDelivery.objects.get(channel=one).code == "SECRET_LOST"
