"""Where alerts are told outside of the console, which of them, and what became of each telling."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField
from config.base.ids import new_id
from guard.access.roles import RISK_MANAGER, RISK_OFFICER
from risk.alerts.models import EscalationLevel

PER_MINUTE = 20  # what DingTalk's and WeCom's robots take


class ChannelKind(models.TextChoices):
    EMAIL = "email", _("e-mail")
    WEBHOOK = "webhook", _("webhook")
    WECOM = "wecom", _("WeCom")
    DINGTALK = "dingtalk", _("DingTalk")
    FEISHU = "feishu", _("Feishu")
    SLACK = "slack", _("Slack")


class Language(models.TextChoices):
    EN = "en", _("English")
    ZH_HANS = "zh-hans", _("Simplified Chinese")


class Band(models.TextChoices):
    LOW = "low", _("low")
    MEDIUM = "medium", _("medium")
    HIGH = "high", _("high")
    CRITICAL = "critical", _("critical")


class NotifyChannel(models.Model):
    """One place that alerts are sent to.

    sealed: tokens, secrets and passwords, encrypted (`sealing`); never shown again. shown: what may be seen of where it
    leads. options: what is no secret (of an e-mail: host, port, mode, user, sender, recipients).
    busy_until, busy_token: a worker sends there, until then at most; one message is under way at a time. not_before,
    failures: it did not answer so often in a row, or has had its number of messages, and is left alone so long.
    """

    channel_id = IdField(_("channel"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    name = models.CharField(_("channel name"), max_length=64)
    kind = models.CharField(_("kind"), max_length=8, choices=ChannelKind)
    enabled = models.BooleanField(_("in use"), default=True)
    language = models.CharField(_("language"), max_length=8, choices=Language, default=Language.ZH_HANS)
    options = CanonicalJSONField(default=dict)
    sealed = models.TextField(default="", editable=False)
    shown = models.CharField(_("leads to"), max_length=200, blank=True, default="")
    per_minute = models.PositiveSmallIntegerField(_("messages a minute"), default=PER_MINUTE)
    quiet_from = models.TimeField(_("quiet from"), null=True, blank=True)
    quiet_to = models.TimeField(_("quiet to"), null=True, blank=True)
    busy_until = models.DateTimeField(null=True, blank=True, editable=False)
    busy_token = IdField(default="", editable=False)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True, editable=False)
    failures = models.PositiveIntegerField(_("failures in a row"), default=0, editable=False)
    served_at = models.DateTimeField(default=now, editable=False)
    created_at = models.DateTimeField(_("created"), default=now, editable=False)

    class Meta:
        app_label = "risk"
        db_table = "notify_channel"
        verbose_name = _("notification channel")
        verbose_name_plural = _("notification channels")
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="notify_channel_name")]
        indexes = [
            # the next channel to serve (few rows in all)
            models.Index(fields=["enabled", "served_at"], name="notify_channel_turn"),
        ]

    def __str__(self) -> str:
        return self.name


class NotifyRule(models.Model):
    """Which alerts a channel is told of. Empty: any. Only what happens after `active_since`."""

    class Type(models.TextChoices):
        ANY = "", _("every type")
        EVENT = "event", _("customer alert")
        REPORT = "report", _("large-amount report")
        PATTERN = "pattern", _("advisor conduct")

    class Role(models.TextChoices):
        ANY = "", _("anybody")
        OFFICER = RISK_OFFICER, _("officers")
        MANAGER = RISK_MANAGER, _("managers")

    class Level(models.TextChoices):
        ANY = "", _("with or without a level")
        LEVEL_1 = EscalationLevel.LEVEL_1.value, _("from level 1 on")
        LEVEL_2 = EscalationLevel.LEVEL_2.value, _("level 2")

    tenant = IdField(_("tenant"), default="default")
    channel = models.ForeignKey(
        NotifyChannel, verbose_name=_("notification channel"), on_delete=models.CASCADE, related_name="rules"
    )
    enabled = models.BooleanField(_("in use"), default=True)
    alert_type = models.CharField(_("alert type"), max_length=16, choices=Type, blank=True, default=Type.ANY)
    least_band = models.CharField(_("from the score band"), max_length=8, choices=Band, default=Band.MEDIUM)
    least_level = models.CharField(_("escalation"), max_length=8, choices=Level, blank=True, default=Level.ANY)
    role = models.CharField(_("meant for"), max_length=16, choices=Role, blank=True, default=Role.ANY)
    active_since = models.DateTimeField(_("since"), default=now, editable=False)

    class Meta:
        app_label = "risk"
        db_table = "notify_rule"
        verbose_name = _("notification rule")
        verbose_name_plural = _("notification rules")
        ordering = ["pk"]
        indexes = [
            # the rules of a tenant, for each batch of events
            models.Index(fields=["tenant", "enabled"], name="notify_rule_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.pk}"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    SENDING = "sending", _("being sent")
    SENT = "sent", _("sent")
    FOLDED = "folded", _("in a summary")
    FAILED = "failed", _("given up")
    # Perhaps it arrived: whoever sent it died, or the far end took it and did not answer. It is never sent again by
    # itself.
    UNKNOWN = "unknown", _("not known whether it arrived")


OVER = (DeliveryState.SENT, DeliveryState.FOLDED, DeliveryState.FAILED, DeliveryState.UNKNOWN)


class NotifyDelivery(models.Model):
    """One event for one channel, a summary of several, or a test.

    seq: of the event in the tenant's feed; NULL for summaries and tests. Unique with the channel: made once.
    body: the published payload of the event, or what the summary counts. rank: 0 a test, 1 critical (not held back in
    quiet hours), 2 the rest. uncertain: an earlier try may have arrived. token, lease_until: who sends it, until when.
    code: why the last try failed, a word of `outcomes`; status: what the far end answered with.
    """

    class Kind(models.TextChoices):
        ALERT = "alert", _("alert")
        DIGEST = "digest", _("summary")
        TEST = "test", _("test")

    delivery_id = IdField(_("delivery"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    channel = models.ForeignKey(
        NotifyChannel, verbose_name=_("notification channel"), on_delete=models.PROTECT, related_name="deliveries"
    )
    kind = models.CharField(_("kind"), max_length=8, choices=Kind, default=Kind.ALERT)
    seq = models.PositiveBigIntegerField(_("number in the feed"), null=True, blank=True)
    alert_id = IdField(_("alert"), blank=True, default="")
    body = CanonicalJSONField(default=dict)
    rank = models.PositiveSmallIntegerField(default=2)
    state = models.CharField(_("state"), max_length=8, choices=DeliveryState, default=DeliveryState.WAITING)
    attempts = models.PositiveIntegerField(_("tries"), default=0)
    uncertain = models.BooleanField(default=False)
    next_at = models.DateTimeField(_("next try"), default=now)
    lease_until = models.DateTimeField(null=True, blank=True)
    token = IdField(blank=True, default="")
    code = models.CharField(_("why"), max_length=24, blank=True, default="")
    status = models.IntegerField(_("answer"), null=True, blank=True)
    digest = models.ForeignKey(
        "self", verbose_name=_("summary"), null=True, blank=True, on_delete=models.SET_NULL, related_name="members"
    )
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=now)
    tried_at = models.DateTimeField(_("last try"), null=True, blank=True)
    done_at = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "notify_delivery"
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        ordering = ["-created_at"]
        constraints = [
            # once for an event and channel, whoever reads the feed
            models.UniqueConstraint(fields=["tenant", "seq", "channel"], name="notify_delivery_once"),
        ]
        indexes = [
            # what a channel sends next, and whether there is anything
            models.Index(fields=["channel", "state", "rank", "next_at"], name="notify_delivery_next"),
            # how many went to a channel within the last minute
            models.Index(fields=["channel", "tried_at"], name="notify_delivery_rate"),
            # those whose worker died; backlog and failures of the checks
            models.Index(fields=["state", "lease_until"], name="notify_delivery_lease"),
            # the list in the console, newest first
            models.Index(fields=["tenant", "-created_at"], name="notify_delivery_list"),
            # retention
            models.Index(fields=["state", "done_at"], name="notify_delivery_done"),
        ]

    def __str__(self) -> str:
        return self.delivery_id


class NotifyCursor(models.Model):
    """Up to which number of a tenant's feed deliveries have been made; its row is the readers' lock."""

    tenant = IdField(primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "risk"
        db_table = "notify_cursor"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.tenant} {self.seq}"
