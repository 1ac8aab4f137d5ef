"""What people do with channels, rules and deliveries. Each with its audit row, which names no secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils.translation import gettext as _

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.people import By, admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.calendar.services import tell_change
from risk.notify import addresses
from risk.notify.models import ChannelKind, DeliveryState, NotifyChannel, NotifyDelivery, NotifyRule
from risk.notify.sealing import SecretLost, Secrets, reseal, seal, unseal

CHANGE_CHANNEL = "risk.change_notifychannel"
CHANGE_RULE = "risk.change_notifyrule"
RESEND = "risk.change_notifydelivery"
LEAST_SECRET = 16  # characters of a webhook's signing secret
MOST_RECIPIENTS = 50
MAIL_MODES = ("starttls", "ssl", "insecure")


@dataclass(frozen=True)
class Entered:
    """What was typed of secrets: an empty one leaves what is there. forget: takes the signing secret away."""

    address: str = ""
    secret: str = ""
    password: str = ""
    forget: frozenset[str] = field(default_factory=frozenset)


def save_channel(*, channel: NotifyChannel, entered: Entered, by: By) -> NotifyChannel:
    """Adds or changes one. by: a person with CHANGE_CHANNEL, of the tenant, or the name of a command.

    What waits for a channel that is taken out of use is given up. Errors: FORBIDDEN (403, one audit row), INVALID_ID,
    INVALID_REQUEST, which says nothing of what was typed as a secret.
    """
    check_id("tenant", channel.tenant)
    name = admit_staff(
        by, CHANGE_CHANNEL, action="save", object_type="notify_channel", object_id=channel.pk, tenant=channel.tenant
    )
    with transaction.atomic():
        before = NotifyChannel.objects.select_for_update().filter(tenant=channel.tenant, pk=channel.pk).first()
        if before is not None and before.kind != channel.kind:
            raise DomainError("INVALID_REQUEST", "a channel keeps its kind: make another one")
        same_name = NotifyChannel.objects.filter(tenant=channel.tenant, name=channel.name)
        if same_name.exclude(pk=channel.pk).exists():
            raise DomainError("INVALID_REQUEST", _("another channel has this name"))
        secrets, changed = _merged(channel, before, entered)
        channel.shown = _checked(channel, secrets)
        if changed or before is None:
            channel.sealed = seal(channel_id=channel.pk, secrets=secrets)
            channel.not_before, channel.failures = None, 0
        else:
            channel.sealed = before.sealed
        if before is None:
            channel.save(force_insert=True)
        else:
            # What workers note there is theirs.
            channel.save(update_fields=[
                "name", "enabled", "language", "options", "sealed", "shown", "per_minute", "quiet_from", "quiet_to",
                *(("not_before", "failures") if changed else ()),
            ])  # fmt: skip
        dropped = 0 if channel.enabled else _give_up(channel)
        told: dict[str, Any] = {
            "action": "change" if before else "add",
            "kind": channel.kind,
            "in_use": channel.enabled,
        }
        told |= {"secrets_changed": sorted(changed)} if changed else {}
        told |= {"given_up": dropped} if dropped else {}
        tell_change(channel, by, name, told)
    return channel


def check_channel(*, channel: NotifyChannel, entered: Entered) -> None:
    """What `save_channel` would refuse of it, before it is saved. Errors: INVALID_REQUEST, in the reader's language."""
    before = NotifyChannel.objects.filter(tenant=channel.tenant, pk=channel.pk).first()
    if NotifyChannel.objects.filter(tenant=channel.tenant, name=channel.name).exclude(pk=channel.pk).exists():
        raise DomainError("INVALID_REQUEST", _("another channel has this name"))
    _checked(channel, _merged(channel, before, entered)[0])


def _merged(channel: NotifyChannel, before: NotifyChannel | None, entered: Entered) -> tuple[Secrets, set[str]]:
    """The secrets from now on, and which of them are new."""
    held: Secrets = {}
    if before is not None:
        try:
            held = unseal(channel_id=before.pk, sealed=before.sealed)
        except SecretLost:
            held = {}
    secrets: dict[str, str] = {**held}  # type: ignore[dict-item]
    changed = set()
    for which in ("address", "secret", "password"):
        typed = getattr(entered, which).strip() if which != "password" else entered.password
        if typed:
            secrets[which] = typed
            changed.add(which)
        elif which in entered.forget and which in secrets:
            del secrets[which]
            changed.add(which)
    return Secrets(**secrets), changed  # type: ignore[typeddict-item]


def _checked(channel: NotifyChannel, secrets: Secrets) -> str:
    """What may be shown of where it leads. Errors: INVALID_REQUEST."""
    if (channel.quiet_from is None) != (channel.quiet_to is None):
        raise DomainError("INVALID_REQUEST", _("quiet hours have a beginning and an end"))
    if channel.kind == ChannelKind.EMAIL:
        return _checked_mail(channel)
    address = secrets.get("address", "")
    if not address:
        raise DomainError("INVALID_REQUEST", _("enter the address"))
    if channel.kind == ChannelKind.WEBHOOK:
        if len(secrets.get("secret", "")) < LEAST_SECRET:
            raise DomainError("INVALID_REQUEST", _("enter a signing secret of %d characters or more") % LEAST_SECRET)
        return addresses.check_webhook(address)
    addresses.tokens(channel.kind, address)
    if channel.kind == ChannelKind.DINGTALK and not re.fullmatch("[A-Za-z0-9]*", secrets.get("secret", "")):
        raise DomainError("INVALID_REQUEST", _("a secret of DingTalk is letters and digits: SEC and what follows"))
    return address.partition("://")[2].partition("/")[0]


def _checked_mail(channel: NotifyChannel) -> str:
    options = channel.options
    recipients = options.get("to") or []
    if not 1 <= len(recipients) <= MOST_RECIPIENTS:
        raise DomainError("INVALID_REQUEST", _("enter 1 to %d recipients") % MOST_RECIPIENTS)
    for address in (options.get("sender", ""), *recipients):
        try:
            validate_email(address)
        except ValidationError:
            raise DomainError("INVALID_REQUEST", _("one of the addresses is no e-mail address")) from None
    if (
        options.get("mode") not in MAIL_MODES
        or not options.get("host")
        or not 1 <= int(options.get("port") or 0) < 65536
    ):
        raise DomainError("INVALID_REQUEST", _("enter the mail server, its port and how it is secured"))
    if options["mode"] == "insecure" and not settings.NOTIFY_PLAIN_HTTP:
        raise DomainError("INVALID_REQUEST", _("mail without TLS is not allowed here (NOTIFY_PLAIN_HTTP)"))
    more = f" +{len(recipients) - 1}" if len(recipients) > 1 else ""
    return f"{recipients[0]}{more}"[:200]


def _give_up(channel: NotifyChannel) -> int:
    waiting = NotifyDelivery.objects.filter(channel=channel, state=DeliveryState.WAITING)
    return waiting.update(state=DeliveryState.FAILED, code="CHANNEL_OFF", done_at=now())


def save_rule(*, rule: NotifyRule, by: By) -> NotifyRule:
    """Adds or changes one; it counts for what happens from now on. by: a person with CHANGE_RULE, of the tenant, or the
    name of a command. Errors: FORBIDDEN (403, one audit row), INVALID_ID, INVALID_REQUEST: another tenant's channel."""
    name = _admit_rule(rule, by, "save")
    if rule.channel.tenant != rule.tenant:
        raise DomainError("INVALID_REQUEST", "no such channel")
    with transaction.atomic():
        before = NotifyRule.objects.filter(tenant=rule.tenant, pk=rule.pk).first() if rule.pk else None
        rule.active_since = now()
        rule.save()
        _tell_rule(rule, by, name, "change" if before else "add")
    return rule


def delete_rule(*, rule: NotifyRule, by: By) -> None:
    """Takes one away; what waits already is sent. by, errors: as `save_rule`."""
    name = _admit_rule(rule, by, "delete")
    with transaction.atomic():
        _tell_rule(rule, by, name, "delete")
        rule.delete()


def _admit_rule(rule: NotifyRule, by: By, action: str) -> str:
    check_id("tenant", rule.tenant)
    return admit_staff(by, CHANGE_RULE, action=action, object_type="notify_rule", tenant=rule.tenant)


def _tell_rule(rule: NotifyRule, by: By, name: str, action: str) -> None:
    told = {"action": action, "channel": rule.channel_id, "in_use": rule.enabled, "type": rule.alert_type}  # type: ignore[attr-defined]
    tell_change(rule, by, name, {**told, "band": rule.least_band, "level": rule.least_level, "role": rule.role})


def test_channel(*, channel: NotifyChannel, by: By) -> NotifyDelivery:
    """Has a test sent by the workers, before anything else that waits, and past a pause. by, errors: as `save_channel`;
    INVALID_REQUEST: the channel is out of use."""
    name = admit_staff(
        by, CHANGE_CHANNEL, action="test", object_type="notify_channel", object_id=channel.pk, tenant=channel.tenant
    )
    if not channel.enabled:
        raise DomainError("INVALID_REQUEST", _("the channel is out of use"))
    with transaction.atomic():
        delivery = NotifyDelivery.objects.create(
            tenant=channel.tenant, channel=channel, kind=NotifyDelivery.Kind.TEST, rank=0
        )
        NotifyChannel.objects.filter(pk=channel.pk).update(not_before=None)
        tell_change(channel, by, name, {"action": "test", "kind": channel.kind})
    return delivery


test_channel.__test__ = False  # type: ignore[attr-defined]  # no test of pytest's


def send_again(*, tenant: str, delivery_ids: Sequence[str], by: By) -> int:
    """Those that were given up, or of which it is not known whether they arrived, wait again; how many. The person has
    seen that one may arrive twice. by: a person with RESEND, of the tenant, or the name of a command.

    One transaction and audit row each. Errors: FORBIDDEN (403, one audit row).
    """
    name = admit_staff(by, RESEND, action="resend", object_type="notify_delivery", tenant=tenant)
    count = 0
    for delivery_id in delivery_ids:
        with transaction.atomic():
            over = NotifyDelivery.objects.filter(
                pk=delivery_id, tenant=tenant, state__in=(DeliveryState.FAILED, DeliveryState.UNKNOWN),
                channel__enabled=True,
            )  # fmt: skip
            row = over.select_for_update().first()
            if row is None:
                continue
            over.filter(state=row.state).update(
                state=DeliveryState.WAITING, attempts=0, next_at=now(), done_at=None, token="", lease_until=None
            )
            NotifyChannel.objects.filter(pk=row.channel_id).update(not_before=None)  # type: ignore[attr-defined]
            record(
                tenant=tenant,
                event_type=EventType.DEAD_LETTER,
                decision=Decision.RETRIED,
                actor_type=ActorType.STAFF if isinstance(by, User) else ActorType.SYSTEM,
                actor_id=name[:64],
                object_type="notify_delivery",
                object_id=delivery_id,
                input_summary={"was": row.state, "code": row.code},
            )
            count += 1
    return count


def reseal_all() -> tuple[int, int]:
    """Every channel's secrets under the newest key; how many, and how many no key opens. Then former keys may go."""
    done = lost = 0
    for pk in list(NotifyChannel.objects.exclude(sealed="").values_list("pk", flat=True)):
        with transaction.atomic():
            channel = NotifyChannel.objects.select_for_update().filter(pk=pk).first()
            if channel is None:
                continue
            try:
                sealed = reseal(sealed=channel.sealed)
            except SecretLost:
                lost += 1
                continue
            NotifyChannel.objects.filter(pk=pk).update(sealed=sealed)
            done += 1
    return done, lost
