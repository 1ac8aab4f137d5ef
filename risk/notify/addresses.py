"""Addresses as people paste them: what apprise's plugins need of them."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from config.base.errors import DomainError
from risk.notify.models import ChannelKind

# host, path and query of what each service shows; the token is the group, or the query's.
HOSTS = {
    ChannelKind.WECOM: "https://qyapi.weixin.qq.com",
    ChannelKind.DINGTALK: "https://oapi.dingtalk.com",
    ChannelKind.FEISHU: "https://open.feishu.cn",
    ChannelKind.SLACK: "https://hooks.slack.com",
}
_TOKEN = r"[A-Za-z0-9_-]{4,128}"  # noqa: S105 - what one looks like
_PATHS = {
    ChannelKind.WECOM: ("/cgi-bin/webhook/send", "key"),
    ChannelKind.DINGTALK: ("/robot/send", "access_token"),
    ChannelKind.FEISHU: (rf"/open-apis/bot/v2/hook/({_TOKEN})/?", ""),
    ChannelKind.SLACK: (r"/services/([A-Za-z0-9]+)/([A-Za-z0-9]+)/([A-Za-z0-9]+)/?", ""),
}


def tokens(kind: str, address: str) -> list[str]:
    """Of a robot's address. Errors: INVALID_REQUEST, which says nothing of it."""
    which = ChannelKind(kind)
    known = {HOSTS[which], settings.NOTIFY_BASES.get(which.value, HOSTS[which])}
    path, name = _PATHS[which]
    parts = _split(address)
    if f"{parts.scheme}://{parts.netloc}" in {"://".join(urlsplit(one)[:2]) for one in known}:
        if name:
            found = parse_qs(parts.query).get(name, [])
            sound = parts.path.endswith(path) and len(found) == 1 and re.fullmatch(_TOKEN, found[0])
        else:
            match = re.search(rf"{path}\Z", parts.path)
            found, sound = list(match.groups()) if match else [], match
        if sound:
            return found
    raise DomainError(
        "INVALID_REQUEST", _("this is no address of a robot of %s: paste the one that it shows") % which.label
    )


def check_webhook(address: str) -> str:
    """The host to show. Errors: INVALID_REQUEST, which says nothing of the address."""
    parts = _split(address)
    schemes = {"https", "http"} if settings.NOTIFY_PLAIN_HTTP else {"https"}
    if parts.scheme not in schemes or not parts.hostname or "@" in parts.netloc or len(address) > 2000:
        raise DomainError("INVALID_REQUEST", _("a webhook has an address https://host/path, without a login in it"))
    return parts.netloc


def _split(address: str):  # type: ignore[no-untyped-def]
    try:
        parts = urlsplit(address.strip())
        _port = parts.port
    except ValueError:
        raise DomainError("INVALID_REQUEST", _("this is no address")) from None
    return parts
