"""What each kind of far end is sent, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.notify import signing, wire
from risk.notify.dispatch import work
from risk.notify.following import follow
from risk.notify.models import NotifyChannel, NotifyDelivery
from risk.notify.outcomes import retry_after
from risk.notify.services import Entered, test_channel
from tests.risk.notify.far_end import FarEnd, MailServer, Reply, certificate, far_end, free_port, mail_server
from tests.risk.notify.make import (
    SECRET,
    at_once,
    make_channel,
    make_mail_channel,
    open_the_way,
    payload,
    states,
    tell,
)

pytestmark = pytest.mark.django_db(transaction=True)
ROBOTS = ["wecom", "dingtalk", "feishu", "slack"]


@pytest.fixture
def there(settings: Any) -> Iterator[FarEnd]:
    with far_end() as server:
        open_the_way(settings, server.url)
        yield server


@pytest.fixture
def mail(settings: Any) -> Iterator[MailServer]:
    with mail_server() as server:
        open_the_way(settings)
        yield server


def go() -> NotifyDelivery:
    follow()
    work(seconds=20)
    return NotifyDelivery.objects.latest("created_at")


# --- what is sent -----------------------------------------------------------------------------------------------


def test_a_webhook_is_signed_over_time_and_body(there: FarEnd, settings: Any) -> None:
    settings.PUBLIC_URL = "https://xinghuo.example.com"
    make_channel("webhook", there.url)
    told = payload(escalation_level="LEVEL_2")
    tell(told)
    row = go()
    (got,) = there.got
    assert got.query == {"token": ["address-token"]}
    stamp = got.headers["X-Xinghuo-Timestamp"]
    assert got.headers["X-Xinghuo-Event-Id"] == got.json["id"] == row.pk
    assert (got.json["type"], got.json["seq"], got.json["alert"]) == ("alert", 1, told)
    assert got.json["url"].startswith("https://xinghuo.example.com/admin/risk/riskalert/")
    # as a receiver does it, with nothing of ours
    right = hmac.new(SECRET.encode(), stamp.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert got.headers["X-Xinghuo-Signature"] == f"v1={right}"
    given = {"secret": SECRET, "timestamp": stamp, "given": f"v1={right}", "body": got.body}
    assert signing.verify(**given)
    assert not signing.verify(**{**given, "body": got.body + b" "})
    assert not signing.verify(**{**given, "secret": "another"})
    assert not signing.verify(**given, at=time.time() + 301)
    assert not signing.verify(**{**given, "timestamp": str(int(stamp) + 1)})


def test_dingtalk_is_signed_and_hears_text(there: FarEnd) -> None:
    make_channel("dingtalk", there.url)
    tell()
    assert go().state == "sent"
    (got,) = there.got
    assert got.path == "/robot/send"
    assert got.query["access_token"] == ["dingtalktoken1234"]
    (stamp,), (sign,) = got.query["timestamp"], got.query["sign"]
    right = hmac.new(SECRET.encode(), f"{stamp}\n{SECRET}".encode(), hashlib.sha256).digest()
    assert sign == base64.b64encode(right).decode(), "encoded once on its way"
    assert abs(int(stamp) / 1000 - time.time()) < 60
    assert "score 85 (critical)" in got.json["text"]["content"]


def test_feishu_is_signed_in_the_body(there: FarEnd) -> None:
    make_channel("feishu", there.url)
    tell()
    assert go().state == "sent"
    (got,) = there.got
    assert got.path.rstrip("/") == "/open-apis/bot/v2/hook/feishu-token-1234"
    right = hmac.new(f"{got.json['timestamp']}\n{SECRET}".encode(), b"", hashlib.sha256).digest()
    assert got.json["sign"] == base64.b64encode(right).decode()
    assert got.json["msg_type"] == "text"
    assert "C0***7" in got.json["content"]["text"]


def test_wecom_and_slack(there: FarEnd) -> None:
    make_channel("wecom", there.url)
    tell()
    assert go().state == "sent"
    make_channel("slack", there.url)
    there.reply = Reply(body=b"ok")
    NotifyDelivery.objects.all().delete()
    tell()
    follow()
    work(seconds=20)
    paths = {got.path: got for got in there.got}
    assert paths["/cgi-bin/webhook/send"].query == {"key": ["wecom-token-1234"]}
    assert "C0***7" in paths["/cgi-bin/webhook/send"].json["text"]["content"]
    assert "C0***7" in json.dumps(paths["/services/TSLACK1234/BSLACK1234/slackTokenThatIsLong1234"].json)
    assert NotifyDelivery.objects.get(channel__kind="slack").state == "sent"


def test_mail_goes_to_all_in_one_message(mail: MailServer) -> None:
    login = {"options": {"user": "xinghuo"}, "entered": Entered(password="mail-password-right")}
    make_mail_channel(mail.port, "lin@example.com", "zhou@example.com", **login)
    tell()
    row = go()
    assert row.state == "sent", row.code
    (got,) = mail.got
    assert set(got.rcpt_tos) == {"lin@example.com", "zhou@example.com"}
    assert mail.logins == [("xinghuo", "mail-password-right")]
    assert row.pk.encode() in got.content  # type: ignore[operator]


@pytest.mark.parametrize(("language", "words"), [("en", "Customer alert"), ("zh-hans", "客户预警")])
def test_in_the_channels_language_with_no_more_than_the_payload(there: FarEnd, language: str, words: str) -> None:
    make_channel("feishu", there.url, language=language)
    tell()
    go()
    text = there.got[0].json["content"]["text"]
    assert words.lower() in text.lower()
    assert "C0***7" in text
    assert len(text) < 300


def test_a_test_is_sent_by_the_workers(there: FarEnd) -> None:
    channel = make_channel("dingtalk", there.url)
    NotifyChannel.objects.update(not_before=now() + timedelta(minutes=10))
    row = test_channel(channel=channel, by="test")
    assert there.got == []
    work()
    row.refresh_from_db()
    assert (row.state, row.kind) == ("sent", "test")
    assert "a test" in there.got[0].json["text"]["content"]


# --- what answers mean ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reply", "state", "code"),
    [
        ("webhook", Reply(500), "waiting", "HTTP"),
        ("webhook", Reply(504), "waiting", "HTTP"),
        ("webhook", Reply(404), "failed", "HTTP"),
        ("webhook", Reply(302, headers={"Location": "http://127.0.0.1:1/"}), "failed", "REDIRECT"),
        ("wecom", Reply(500), "waiting", "HTTP"),
        ("wecom", Reply(504), "unknown", "HTTP"),
        ("wecom", Reply(200, b'{"errcode": 93000}'), "failed", "REFUSED"),
        ("wecom", Reply(200, b'{"errcode": 45009}'), "waiting", "BUSY"),
        ("wecom", Reply(200, b"<html>log in</html>"), "unknown", "NOT_UNDERSTOOD"),
        ("dingtalk", Reply(200, b'{"errcode": 310000, "errmsg": "sign not match"}'), "failed", "REFUSED"),
        ("dingtalk", Reply(200, b'{"errcode": "0"}'), "unknown", "NOT_UNDERSTOOD"),
        ("feishu", Reply(200, b'{"code": 19021}'), "failed", "REFUSED"),
        ("feishu", Reply(200, b'{"code": 11232}'), "waiting", "BUSY"),
        ("slack", Reply(404, b"no_service"), "failed", "HTTP"),
        ("slack", Reply(200, b"<html>"), "unknown", "NOT_UNDERSTOOD"),
        ("slack", Reply(cut=True), "unknown", "BROKEN_OFF"),
    ],
)
def test_what_an_answer_means(there: FarEnd, kind: str, reply: Reply, state: str, code: str) -> None:
    make_channel(kind, there.url)
    there.reply = reply
    tell()
    row = go()
    assert (row.state, row.code, len(there.got)) == (state, code, 1)
    over = AuditLog.objects.filter(event_type="notification")
    assert [one.decision for one in over] == ([] if state == "waiting" else ["failed"])


def test_a_far_end_says_how_long_to_wait(there: FarEnd) -> None:
    channel = make_channel("dingtalk", there.url)
    there.replies = [Reply(429, headers={"Retry-After": "120"})]
    tell(payload(), payload())
    row = go()
    channel.refresh_from_db()
    assert len(there.got) == 1, "the other one waits with it"
    assert states() == {"waiting": 2}
    assert channel.not_before is not None
    assert channel.not_before - now() > timedelta(seconds=100)
    row = NotifyDelivery.objects.get(attempts=1)
    assert row.next_at - now() > timedelta(seconds=100)
    at_once()
    work(seconds=20)
    assert states() == {"sent": 2}


def test_retry_after_is_read_with_care() -> None:
    assert retry_after("120") == 120
    assert retry_after("999999999999") == 3600
    assert retry_after("-5") == retry_after("soon") == retry_after("") == retry_after("Wed, 99 Xxx") == 0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0


@pytest.mark.parametrize("reply", [Reply(hang=True), Reply(drip=True)])
def test_a_far_end_that_hangs_costs_its_time(there: FarEnd, settings: Any, reply: Reply) -> None:
    settings.NOTIFY_SECONDS = 1.0
    make_channel("dingtalk", there.url)
    there.reply = reply
    tell()
    began = time.monotonic()
    row = go()
    assert time.monotonic() - began < 4
    assert (row.state, row.code) == ("unknown", "TIMED_OUT")


def test_nobody_there_is_tried_again(settings: Any) -> None:
    open_the_way(settings)
    make_channel("webhook", f"http://127.0.0.1:{free_port()}")
    tell()
    row = go()
    assert (row.state, row.code, row.uncertain) == ("waiting", "UNREACHABLE", False)


def test_given_up_after_so_many_tries(there: FarEnd, settings: Any) -> None:
    settings.NOTIFY_ATTEMPTS = 3
    make_channel("webhook", there.url)
    there.reply = Reply(500)
    tell()
    for _ in range(5):
        go()
        at_once()
    row = NotifyDelivery.objects.get()
    assert (row.state, row.attempts, len(there.got)) == ("failed", 3, 3)
    assert AuditLog.objects.get(event_type="notification").input_summary["tries"] == 3


@pytest.mark.parametrize(
    ("answer", "refuse", "state", "code"),
    [
        ("451 later", set(), "waiting", "MAIL"),
        ("554 spam", set(), "failed", "MAIL"),
        ("250 taken", {"lin@example.com"}, "sent", "PARTLY"),
        ("250 taken", {"lin@example.com", "zhou@example.com"}, "failed", "MAIL"),
    ],
)
def test_what_a_mail_server_says(mail: MailServer, answer: str, refuse: set[str], state: str, code: str) -> None:
    make_mail_channel(mail.port, "lin@example.com", "zhou@example.com")
    mail.answer, mail.refuse = answer, refuse
    tell()
    row = go()
    assert (row.state, row.code) == (state, code)


def test_a_wrong_mail_password(mail: MailServer) -> None:
    make_mail_channel(mail.port, options={"user": "xinghuo"}, entered=Entered(password="mail-password-wrong"))
    tell()
    row = go()
    assert (row.state, row.code, row.status) == ("failed", "MAIL", 535)
    assert mail.got == []


# --- TLS --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "trusted", "reply", "state", "code"),
    [
        ("localhost", True, Reply(), "sent", ""),
        ("localhost", False, Reply(), "waiting", "TLS_FAILED"),
        ("another.example.com", True, Reply(), "waiting", "TLS_FAILED"),
        ("localhost", True, Reply(hang=True), "waiting", "TIMED_OUT"),
        ("localhost", True, Reply(drip=True), "waiting", "TIMED_OUT"),
    ],
)
def test_certificates_are_checked_and_a_hanging_one_is_cut_off(
    settings: Any, tmp_path: Path, name: str, trusted: bool, reply: Reply, state: str, code: str
) -> None:
    context, chain = certificate(tmp_path, name)
    with far_end(context) as server:
        open_the_way(settings)
        settings.NOTIFY_NETWORKS.append(ipaddress.ip_network("::1/128"))
        settings.NOTIFY_PLAIN_HTTP = False
        settings.NOTIFY_SECONDS = 2.0
        settings.NOTIFY_CA_FILE = str(chain) if trusted else ""
        server.reply = reply
        make_channel("webhook", f"https://localhost:{server.port}")
        tell()
        began = time.monotonic()
        row = go()
        assert (row.state, row.code) == (state, code)
        assert time.monotonic() - began < 6
        assert len(server.got) == (code != "TLS_FAILED")


# --- where messages may go --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "::ffff:127.0.0.1",
        "::127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001:0:1::1", "ff02::1",
    ],
)  # fmt: skip
def test_addresses_of_our_own_are_refused(settings: Any, address: str) -> None:
    settings.NOTIFY_NETWORKS = []
    assert not wire.may_reach(address)


def test_addresses_of_others_and_named_ones_are_not(settings: Any) -> None:
    settings.NOTIFY_NETWORKS = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fc00::/7")]
    for address in ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "10.1.2.3", "::ffff:10.1.2.3", "fc00::1"):
        assert wire.may_reach(address), address
    assert not wire.may_reach("10.2.0.1")


def test_a_name_that_leads_inside_is_refused_before_it_is_connected(there: FarEnd, settings: Any) -> None:
    settings.NOTIFY_NETWORKS = []
    make_channel("webhook", there.url.replace("127.0.0.1", "localhost"))
    tell()
    row = go()
    assert (row.state, row.code, there.got) == ("failed", "ADDRESS_REFUSED", [])


def test_a_name_that_changes_while_it_is_asked_reaches_nobody(
    there: FarEnd, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is connected to is what was checked, not what the name says the second time."""
    settings.NOTIFY_NETWORKS = []
    asked = []
    real = socket.getaddrinfo

    def rebinding(host: str, port: int, **how: Any) -> Any:
        if host != "rebinding.example.com":
            return real(host, port, **how)
        asked.append(host)
        address = "192.0.2.1" if len(asked) > 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(wire.socket, "getaddrinfo", rebinding)
    make_channel("webhook", f"http://rebinding.example.com:{there.port}")
    tell()
    assert go().code == "ADDRESS_REFUSED"
    assert (there.got, len(asked)) == ([], 1)


def test_mail_does_not_lead_inside_either(mail: MailServer, settings: Any) -> None:
    make_mail_channel(mail.port)
    settings.NOTIFY_NETWORKS = []
    tell()
    assert go().code == "ADDRESS_REFUSED"
    assert mail.got == []


def test_without_tls_nothing_is_sent(there: FarEnd, settings: Any) -> None:
    make_channel("webhook", there.url)
    settings.NOTIFY_PLAIN_HTTP = False
    tell()
    assert go().code == "ADDRESS_REFUSED"
    assert there.got == []


def test_proxies_of_the_environment_are_not_used(there: FarEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    make_channel("webhook", there.url)
    tell()
    assert go().state == "sent"


# --- secrets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["webhook", *ROBOTS])
def test_no_log_holds_an_address_or_a_secret(
    there: FarEnd, kind: str, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    make_channel(kind, there.url)
    for reply in (Reply(), Reply(500), Reply(cut=True)):
        there.replies = [reply]
        tell()
        go()
        at_once()
    settings.NOTIFY_BASES = {}
    settings.NOTIFY_NETWORKS = []
    tell()
    go()
    written = caplog.text + json.dumps(list(AuditLog.objects.values_list("input_summary", flat=True)))
    for secret in (SECRET, "address-token", "wecom-token", "dingtalktoken", "feishu-token", "slackToken"):
        assert secret not in written
