"""What became of a try, out of what the far end said.

A message that has left and of which nothing was heard is `unknown`: but for webhooks, whose event id lets the receiver
drop a second one, it is not sent again by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from risk.notify import wire
from risk.notify.models import ChannelKind

LONGEST_WAIT = 3600.0  # seconds of a Retry-After that are believed


class Verdict(StrEnum):
    SENT = "sent"
    AGAIN = "again"  # it did not arrive
    NEVER = "never"  # refused: the same again would be refused again
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """code: a word of REASONS. status: what the far end answered with. wait: seconds that it asks for. perhaps: it may
    have arrived all the same."""

    verdict: Verdict
    code: str = ""
    status: int | None = None
    wait: float = 0.0
    perhaps: bool = False


REASONS: dict[str, Promise] = {
    wire.UNREACHABLE: _("the far end cannot be reached"),
    wire.TIMED_OUT: _("the far end did not answer in time"),
    wire.ADDRESS_REFUSED: _("the address lies in a network that is not allowed, or is not https"),
    wire.TOO_LATE: _("its time was over before it was sent"),
    wire.BROKEN: _("the connection broke"),
    wire.TLS_FAILED: _("the far end's certificate is not in order"),
    "HTTP": _("the far end answered with an error"),
    "REFUSED": _("the far end refused it: token, secret or content"),
    "BUSY": _("the far end asks for patience"),
    "NOT_UNDERSTOOD": _("the far end's answer cannot be understood"),
    "REDIRECT": _("the far end points elsewhere, which is not followed"),
    "MAIL": _("the mail server refused it"),
    "PARTLY": _("the mail server refused some of the recipients"),
    "SECRET_LOST": _("no key opens the channel's secrets: enter them again"),
    "CHANNEL_OFF": _("the channel was taken out of use"),
    "WORKER_LOST": _("the process that sent it ended before it could say so"),
    "FAULT": _("a fault of ours; the log of the worker has its kind"),
}

# Answers of robots with status 200 that mean "later": busy, or too many messages.
_LATER = {
    ChannelKind.WECOM: {-1, 45009, 45033},
    ChannelKind.DINGTALK: {-1, 130101, 130102, 410100},
    ChannelKind.FEISHU: {11232, 9499, 1000004, 1000005},
}
_ROBOT_WAIT = 60.0
_SOON = {425, 429, 500, 502, 503}
_PERHAPS = {408, 504}


def judge(one: wire.Try, *, kind: str) -> Outcome:
    if kind == ChannelKind.EMAIL:
        return _mail(one)
    if one.answer is None:
        return _silent(one, kind)
    status = one.answer.status_code
    if 200 <= status < 300:
        return _taken(one.answer, kind)
    if 300 <= status < 400:
        return Outcome(Verdict.NEVER, "REDIRECT", status)
    if status in _SOON:
        code = "BUSY" if status in {429, 503} else "HTTP"
        return Outcome(Verdict.AGAIN, code, status, retry_after(one.answer.headers.get("retry-after", "")))
    if status in _PERHAPS:
        return Outcome(_unheard(kind), "HTTP", status, perhaps=True)
    return Outcome(Verdict.NEVER if status < 500 else Verdict.AGAIN, "HTTP", status)


def _unheard(kind: str) -> Verdict:
    return Verdict.AGAIN if kind == ChannelKind.WEBHOOK else Verdict.UNKNOWN


def _silent(one: wire.Try, kind: str) -> Outcome:
    if one.fault == wire.ADDRESS_REFUSED:
        return Outcome(Verdict.NEVER, one.fault)
    return Outcome(
        _unheard(kind) if one.begun else Verdict.AGAIN,
        one.fault or (wire.TIMED_OUT if one.cut else wire.BROKEN),
        perhaps=one.begun,
    )


def _taken(answer: wire.Answer, kind: str) -> Outcome:
    """Robots say in the body whether they took it."""
    status = answer.status_code
    if kind == ChannelKind.WEBHOOK:
        return Outcome(Verdict.SENT, status=status)
    if kind == ChannelKind.SLACK:
        if answer.content.strip() == b"ok":
            return Outcome(Verdict.SENT, status=status)
        return Outcome(Verdict.UNKNOWN, "NOT_UNDERSTOOD", status)
    try:
        said = json.loads(answer.content)
    except (ValueError, RecursionError):
        said = None
    code = said.get("code" if kind == ChannelKind.FEISHU else "errcode") if isinstance(said, dict) else None
    if isinstance(code, bool) or not isinstance(code, int):
        return Outcome(Verdict.UNKNOWN, "NOT_UNDERSTOOD", status)
    if code == 0:
        return Outcome(Verdict.SENT, status=status)
    code = max(-(2**31), min(code, 2**31 - 1))
    if code in _LATER[ChannelKind(kind)]:
        return Outcome(Verdict.AGAIN, "BUSY", code, _ROBOT_WAIT)
    return Outcome(Verdict.NEVER, "REFUSED", code)


def _mail(one: wire.Try) -> Outcome:
    code = one.mail
    if code is None:
        return _silent(one, ChannelKind.EMAIL)
    if 200 <= code < 300:
        return Outcome(Verdict.SENT, "PARTLY" if one.refused else "", code)
    return Outcome(Verdict.AGAIN if code < 500 else Verdict.NEVER, "MAIL", code)


def retry_after(value: str) -> float:
    """Seconds, from a number or a date; 0 for what is neither, LONGEST_WAIT at most."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), LONGEST_WAIT)
    try:
        at = parsedate_to_datetime(value)
        return max(0.0, min((at - now()).total_seconds(), LONGEST_WAIT))
    except (ValueError, TypeError, IndexError):
        return 0.0
