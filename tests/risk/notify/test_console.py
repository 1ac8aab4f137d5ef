"""Channels, rules and notifications in the console: who may, and that no secret comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command

from guard.audit.models import AuditLog
from risk.notify.dispatch import work
from risk.notify.following import follow
from risk.notify.models import NotifyChannel, NotifyDelivery, NotifyRule
from risk.notify.sealing import unseal
from tests.risk.console.make import make_client, make_manager, make_officer, make_operator, make_person
from tests.risk.notify.far_end import FarEnd, Reply, far_end
from tests.risk.notify.make import SECRET, make_channel, open_the_way, tell

pytestmark = pytest.mark.django_db(transaction=True)
CHANNELS, RULES, SENT = (f"/admin/risk/notify{name}/" for name in ("channel", "rule", "delivery"))
HOOK = {
    "name": "desk", "kind": "webhook", "enabled": "on", "language": "en", "per_minute": "20",
    "address": "https://hooks.example.com/a/address-token", "secret": SECRET,
}  # fmt: skip


@pytest.fixture
def there(settings: Any) -> Iterator[FarEnd]:
    with far_end() as server:
        open_the_way(settings, server.url)
        yield server


def test_a_secret_that_was_saved_is_nowhere_any_more() -> None:
    ops = make_client(make_operator())
    assert ops.post(f"{CHANNELS}add/", HOOK).status_code == 302
    channel = NotifyChannel.objects.get()
    assert unseal(channel_id=channel.pk, sealed=channel.sealed)["secret"] == SECRET
    shown = ops.get(CHANNELS).content.decode() + ops.get(f"{CHANNELS}{channel.pk}/change/").content.decode()
    assert "hooks.example.com" in shown
    # nothing typed leaves what is there
    changed = {"name": "desk 2", "enabled": "on", "language": "en", "per_minute": "5", "address": "", "secret": ""}
    assert ops.post(f"{CHANNELS}{channel.pk}/change/", changed).status_code == 302
    channel.refresh_from_db()
    assert (channel.name, channel.per_minute) == ("desk 2", 5)
    assert unseal(channel_id=channel.pk, sealed=channel.sealed)["address"] == HOOK["address"]
    shown += ops.get(f"{CHANNELS}{channel.pk}/history/").content.decode()
    rows = list(AuditLog.objects.order_by("id").values_list("event_type", "input_summary"))
    written = shown + str(rows) + str(list(LogEntry.objects.values())) + str(list(NotifyChannel.objects.values()))
    assert SECRET not in written
    assert "address-token" not in written
    assert [row[1]["action"] for row in rows if row[0] == "config_change"] == ["add", "change"]
    assert [row[1].get("secrets_changed") for row in rows if row[0] == "config_change"] == [["address", "secret"], None]


@pytest.mark.parametrize(
    "fields",
    [
        {"address": ""},
        {"address": "http://hooks.example.com/address-token"},
        {"address": "https://user:address-token@hooks.example.com/"},
        {"address": "file:///etc/address-token"},
        {"secret": "short-secret"},
        {"kind": "dingtalk", "address": "https://evil.example.com/robot/send?access_token=address-token"},
        {"kind": "dingtalk", "address": "dingtalk://address-token"},
        {"kind": "slack", "address": "https://hooks.slack.com/address-token"},
        {"kind": "feishu", "address": "https://open.feishu.cn/open-apis/bot/v2/hook/../address-token"},
        {"kind": "email", "mail_to": "nobody", "mail_sender": "x@example.com", "mail_host": "m", "mail_mode": "ssl"},
        {"kind": "email", "mail_to": "a@example.com", "mail_sender": "x@e.com", "mail_host": "m",
         "mail_mode": "insecure"},
        {"quiet_from": "22:00"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_not_shown(fields: dict[str, str]) -> None:
    ops = make_client(make_operator())
    answer = ops.post(f"{CHANNELS}add/", {**HOOK, **fields})
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "errornote" in text
    assert "address-token" not in text
    assert "short-secret" not in text
    assert not NotifyChannel.objects.exists()


def test_operators_run_channels_and_managers_rules_each_of_their_tenant(there: FarEnd) -> None:
    channel = make_channel("webhook", there.url, rule=False, name="desk")
    elsewhere = make_channel("webhook", there.url, rule=False, name="elsewhere", tenant="other")
    ops, meng, lin = (make_client(person) for person in (make_operator(), make_manager(), make_officer()))
    rule = {
        "channel": channel.pk,
        "enabled": "on",
        "least_band": "medium",
        "alert_type": "",
        "least_level": "",
        "role": "",
    }
    assert ops.post(f"{RULES}add/", rule).status_code == 403
    assert meng.post(f"{RULES}add/", rule).status_code == 302
    assert meng.post(f"{RULES}add/", {**rule, "channel": elsewhere.pk}).status_code == 200
    made = NotifyRule.objects.get()
    assert meng.get(CHANNELS).status_code == 200
    assert meng.get(f"{CHANNELS}{channel.pk}/change/").status_code == 200
    assert meng.post(f"{CHANNELS}add/", HOOK).status_code == 403
    assert meng.post(f"{CHANNELS}{channel.pk}/change/", {**HOOK, "name": "mine"}).status_code == 403
    assert meng.post(f"{CHANNELS}{channel.pk}/change/", {"_test": "1"}).status_code == 403
    for address in (CHANNELS, RULES, SENT):
        assert lin.get(address).status_code == 403, address
    for client in (ops, meng):
        assert "elsewhere" not in client.get(CHANNELS).content.decode()
        assert client.get(f"{CHANNELS}{elsewhere.pk}/change/").status_code in (302, 404)
    assert ops.post(f"{CHANNELS}{elsewhere.pk}/change/", {"_test": "1"}).status_code == 403
    assert ops.post(f"{CHANNELS}{channel.pk}/delete/", {"post": "yes"}).status_code == 403
    assert meng.post(f"{RULES}{made.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not NotifyRule.objects.exists()
    assert not NotifyDelivery.objects.exists()


def test_a_test_and_a_second_try_by_button(there: FarEnd) -> None:
    channel = make_channel("dingtalk", there.url)
    ops = make_client(make_operator())
    answer = ops.post(f"{CHANNELS}{channel.pk}/change/", {"_test": "1"}, follow=True)
    assert "waiting" in answer.content.decode()
    work()
    assert NotifyDelivery.objects.get().state == "sent"
    there.reply = Reply(cut=True)
    tell()
    follow()
    work()
    row = NotifyDelivery.objects.get(kind="alert")
    page = ops.get(f"{SENT}{row.pk}/change/").content.decode()
    assert "It may have arrived" in page
    assert "the connection broke" in page
    assert "C0***7" not in page, "what it says of a case is not for operators"
    manager = make_client(make_manager())
    assert manager.get(f"{SENT}{row.pk}/change/").status_code == 200
    assert manager.post(f"{SENT}{row.pk}/change/", {"again": "1"}).status_code == 403
    there.reply = Reply()
    ops.post(SENT, {"action": "send_again", "_selected_action": [row.pk]})
    work()
    row.refresh_from_db()
    assert row.state == "sent"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_pages_cost_a_fixed_number_of_queries(
    there: FarEnd, language: str, django_assert_max_num_queries: Any
) -> None:
    root = make_client(make_person("root", superuser=True), language=language)
    make_channel("webhook", there.url)
    tell(*[{**_payload(), "alert_id": f"a{n}"} for n in range(60)])
    follow()
    for address in (CHANNELS, RULES, SENT):
        root.get(address)
        with django_assert_max_num_queries(16):
            assert root.get(address).status_code == 200


def _payload() -> dict[str, Any]:
    from tests.risk.notify.make import payload

    return payload()


def test_the_command_that_reseals(there: FarEnd, capsys: pytest.CaptureFixture[str]) -> None:
    make_channel("webhook", there.url)
    call_command("reseal_notifications", "--json")
    assert capsys.readouterr().out.strip() == '{"resealed": 1, "lost": 0}'
