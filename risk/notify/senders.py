"""How each kind of channel is spoken to: robots and mail by apprise's plugins, webhooks by ourselves.

apprise is asked for its plugins by class, never by an address of its own kind, so that no address typed by a person
chooses a plugin (it has some that write files and run programs). What apprise 2.3 leaves out is done here: it signs for
DingTalk, though with a signature that it encodes twice; it does not sign for Feishu; of DingTalk and WeCom it takes a
refusal with status 200 for success (outcomes.py reads the answer). WeCom's robots have no signature.
"""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from django.conf import settings

from config.base.clock import now, rfc3339
from config.base.fields import canonical_json
from risk.notify import signing, wire
from risk.notify.addresses import tokens
from risk.notify.messages import Message, compose, link
from risk.notify.models import ChannelKind, NotifyDelivery
from risk.notify.outcomes import Outcome, Verdict, judge
from risk.notify.sealing import Secrets


@dataclass(frozen=True)
class Parcel:
    """What a sender needs of a delivery and its channel."""

    delivery_id: str
    kind: str
    seq: int | None
    body: Mapping[str, Any]
    attempt: int
    channel_kind: str
    language: str
    options: Mapping[str, Any]


def send(parcel: Parcel, secrets: Secrets, *, until: float) -> Outcome:
    """One try. until: of time.monotonic(); it is not begun after it. Takes NOTIFY_SECONDS at most. No errors."""
    one = wire.Try(until=until, base=settings.NOTIFY_BASES.get(parcel.channel_kind, ""))
    try:
        with wire.trying(one):
            _SENDERS[ChannelKind(parcel.channel_kind)](parcel, secrets, one)
    except Exception as error:  # noqa: BLE001 - the row is told; texts of libraries hold tokens
        if one.answer is None and one.mail is None and not one.fault:
            one.fault = "FAULT"
            wire.note_fault(error)
            return Outcome(Verdict.UNKNOWN if one.begun else Verdict.AGAIN, "FAULT")
    return judge(one, kind=parcel.channel_kind)


def _message(parcel: Parcel) -> Message:
    return compose(kind=parcel.kind, body=parcel.body, language=parcel.language)


# --- webhooks ---------------------------------------------------------------------------------------------------


def webhook_body(parcel: Parcel) -> bytes:
    """docs/webhooks.md: `id`, `type` (alert, digest, test), `seq`, `sent_at`, and `alert` or `digest`."""
    told: dict[str, Any] = {"id": parcel.delivery_id, "type": parcel.kind, "sent_at": rfc3339(now())}
    if parcel.seq is not None:
        told["seq"] = parcel.seq
    if parcel.kind == NotifyDelivery.Kind.ALERT:
        told["alert"] = dict(parcel.body)
        if address := link(parcel.body["alert_id"]):
            told["url"] = address
    elif parcel.kind == NotifyDelivery.Kind.DIGEST:
        told["digest"] = dict(parcel.body)
    return canonical_json(told).encode()


def _webhook(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    body = webhook_body(parcel)
    timestamp = str(int(time.time()))
    wire.fetch(
        "POST",
        secrets["address"],
        data=body,
        headers={
            "Content-Type": "application/json",
            "User-Agent": "Xinghuo",
            signing.EVENT_ID: parcel.delivery_id,
            signing.ATTEMPT: str(parcel.attempt),
            signing.TIMESTAMP: timestamp,
            signing.SIGNATURE: signing.signature(secret=secrets["secret"], timestamp=timestamp, body=body),
        },
    )


# --- robots -----------------------------------------------------------------------------------------------------


@cache
def _apprise() -> SimpleNamespace:
    """Its plugins, speaking through `wire`. Imported late: only the workers of the queue need them."""
    from apprise import AppriseAsset, NotifyFormat
    from apprise.plugins import dingtalk, feishu, slack, wecombot
    from apprise.plugins.email import base as mail
    from apprise.plugins.email import smtp

    for module, name, ours in (
        *((one, "requests", wire.Requests) for one in (dingtalk, feishu, slack, wecombot)),
        (smtp, "smtplib", wire.Mail),
    ):
        getattr(module, name)  # an AttributeError here says that apprise has another way out
        setattr(module, name, ours)

    class DingTalk(dingtalk.NotifyDingTalk):  # type: ignore[misc]
        def get_signature(self) -> tuple[str, str]:
            """Quoted once more on its way, as a parameter."""
            timestamp, quoted = super().get_signature()
            return timestamp, unquote(quoted)

    return SimpleNamespace(
        asset=AppriseAsset(app_id="Xinghuo", app_desc="Xinghuo", async_mode=False, storage_mode="memory"),
        text=NotifyFormat.TEXT,
        dingtalk=DingTalk,
        feishu=feishu.NotifyFeishu,
        slack=slack.NotifySlack,
        wecom=wecombot.NotifyWeComBot,
        email=mail.NotifyEmail,
    )


def _by_apprise(plugin: Callable[..., Any], parcel: Parcel, **how: Any) -> None:
    """One request: what is too long is cut and not sent in parts, and nothing is tried twice."""
    library = _apprise()
    speaker = plugin(
        asset=library.asset, format=library.text, overflow="truncate", redirect="no", retry=0,
        cto=wire.CONNECT_SECONDS, rto=settings.NOTIFY_SECONDS, **how,
    )  # fmt: skip
    said = _message(parcel)
    speaker.notify(title=said.title, body=said.body, body_format=library.text)


def _wecom(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    (key,) = tokens(ChannelKind.WECOM, secrets["address"])
    _by_apprise(_apprise().wecom, parcel, key=key)


def _dingtalk(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    (token,) = tokens(ChannelKind.DINGTALK, secrets["address"])
    _by_apprise(_apprise().dingtalk, parcel, token=token, secret=secrets.get("secret") or None)


def feishu_signature(*, secret: str, timestamp: str) -> str:
    """The HMAC-SHA256 of nothing, under time and secret."""
    return base64.b64encode(hmac.digest(f"{timestamp}\n{secret}".encode(), b"", "sha256")).decode()


def _feishu(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    (token,) = tokens(ChannelKind.FEISHU, secrets["address"])
    if secret := secrets.get("secret"):

        def signed(body: bytes) -> bytes:
            timestamp = str(int(time.time()))
            signature = {"timestamp": timestamp, "sign": feishu_signature(secret=secret, timestamp=timestamp)}
            return json.dumps({**signature, **json.loads(body)}, ensure_ascii=False).encode()

        one.amend = signed
    _by_apprise(_apprise().feishu, parcel, token=token)


def _slack(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    a, b, c = tokens(ChannelKind.SLACK, secrets["address"])
    _by_apprise(_apprise().slack, parcel, token_a=a, token_b=b, token_c=c, include_image=False, include_footer=False)


# --- mail -------------------------------------------------------------------------------------------------------


def _email(parcel: Parcel, secrets: Secrets, one: wire.Try) -> None:
    """One message to all of its recipients: either the server takes it, or it does not."""
    options = parcel.options
    to, *others = options["to"]
    _by_apprise(
        _apprise().email, parcel, host=options["sender"].partition("@")[2], smtp_host=options["host"],
        port=options["port"], secure_mode=options["mode"], user=options.get("user") or None,
        password=secrets.get("password") or None, from_addr=options["sender"], targets=[to], cc=others,
        headers={signing.EVENT_ID: parcel.delivery_id},
    )  # fmt: skip


_SENDERS: dict[ChannelKind, Callable[[Parcel, Secrets, wire.Try], None]] = {
    ChannelKind.EMAIL: _email,
    ChannelKind.WEBHOOK: _webhook,
    ChannelKind.WECOM: _wecom,
    ChannelKind.DINGTALK: _dingtalk,
    ChannelKind.FEISHU: _feishu,
    ChannelKind.SLACK: _slack,
}
