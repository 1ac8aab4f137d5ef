"""Channels, rules and events of these stories."""

from __future__ import annotations

import ipaddress
from typing import Any

from django.db import transaction

from config.base.ids import new_id
from risk.alerts.models import AlertOutbox
from risk.feed.services import stamp
from risk.notify.models import Band, ChannelKind, NotifyChannel, NotifyDelivery, NotifyRule
from risk.notify.services import Entered, save_channel

SECRET = "SECa1b2c3d4e5f6a7b8c9d0"
TOKENS = {
    "wecom": "/cgi-bin/webhook/send?key=wecom-token-1234",
    "dingtalk": "/robot/send?access_token=dingtalktoken1234",
    "feishu": "/open-apis/bot/v2/hook/feishu-token-1234",
    "slack": "/services/TSLACK1234/BSLACK1234/slackTokenThatIsLong1234",
}


def open_the_way(settings: Any, url: str = "") -> None:
    """This machine's own servers may be reached, without TLS; robots are looked for there."""
    settings.NOTIFY_NETWORKS = [ipaddress.ip_network("127.0.0.0/8")]
    settings.NOTIFY_PLAIN_HTTP = True
    settings.NOTIFY_BASES = dict.fromkeys(TOKENS, url) if url else {}


def make_channel(kind: str = "webhook", url: str = "", *, rule: bool = True, **fields: Any) -> NotifyChannel:
    """With a rule that takes everything."""
    entered = fields.pop("entered", None)
    tenant = fields.get("tenant", "default")
    if entered is None:
        address = f"{url}/hook?token=address-token" if kind == ChannelKind.WEBHOOK else f"{url}{TOKENS.get(kind, '')}"
        entered = Entered(address=address, secret=SECRET)
    fields = {"name": f"{kind} {new_id()[-6:]}", "language": "en", "per_minute": 0, **fields}
    channel = save_channel(channel=NotifyChannel(kind=kind, **fields), entered=entered, by="test")
    if rule:
        NotifyRule.objects.create(tenant=tenant, channel=channel, least_band=Band.LOW)
    return channel


def make_mail_channel(port: int, *to: str, **fields: Any) -> NotifyChannel:
    options = {"host": "127.0.0.1", "port": port, "mode": "insecure", "user": "", "sender": "xinghuo@example.com",
               "to": list(to) or ["lin@example.com"]}  # fmt: skip
    options |= fields.pop("options", {})
    return make_channel("email", options=options, entered=fields.pop("entered", Entered()), **fields)


def payload(score: int = 85, **fields: Any) -> dict[str, Any]:
    return {
        "alert_id": new_id(), "alert_type": "event", "customer_id_mask": "C0***7", "risk_score": score,
        "trace_id": "0" * 31 + "1", "notify_role": ["risk_officer"], "alert_subtype": ["concentration"], **fields,
    }  # fmt: skip


def tell(*payloads: dict[str, Any], tenant: str = "default", stamped: bool = True) -> list[AlertOutbox]:
    with transaction.atomic():
        rows = AlertOutbox.objects.bulk_create(
            AlertOutbox(tenant=tenant, kind="alert", alert_id=one["alert_id"], event=one)
            for one in payloads or (payload(),)
        )
    if stamped:
        stamp(tenant=tenant)
    return rows


def states() -> dict[str, int]:
    found: dict[str, int] = {}
    for state in NotifyDelivery.objects.values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found


def at_once(**fields: Any) -> None:
    """No pause is waited for, and no lease."""
    from datetime import timedelta

    from config.base.clock import now

    past = now() - timedelta(seconds=1)
    NotifyChannel.objects.filter(busy_until__isnull=False).update(busy_until=past)
    NotifyChannel.objects.filter(not_before__isnull=False).update(not_before=past)
    NotifyDelivery.objects.filter(state="waiting").update(next_at=past)
    NotifyDelivery.objects.filter(state="sending").update(lease_until=past)
