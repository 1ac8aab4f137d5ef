"""Alerts, their evidence, what was done with them, and the outbox that tells of it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Coalesce, Left
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField, json_object, texts
from config.base.ids import new_id


class AlertType(models.TextChoices):
    EVENT = "event", _("customer alert")
    REPORT = "report", _("large-amount report")
    PATTERN = "pattern", _("advisor conduct")
    DATA_QUALITY = "data_quality", _("data quality")


class AlertStatus(models.TextChoices):
    PENDING = "pending", _("pending")
    IN_REVIEW = "in_review", _("in review")
    ESCALATED = "escalated", _("escalated")
    CONFIRMED = "confirmed", _("confirmed")
    FALSE_POSITIVE = "false_positive", _("false positive")
    CLOSED = "closed", _("closed")


DISPOSED = (AlertStatus.CONFIRMED, AlertStatus.FALSE_POSITIVE, AlertStatus.CLOSED)


class EscalationLevel(models.TextChoices):
    NONE = "", _("none")
    LEVEL_1 = "LEVEL_1", _("level 1")
    LEVEL_2 = "LEVEL_2", _("level 2")


class DispositionCode(models.TextChoices):
    C01 = "C01", _("unsuitable sale")
    C02 = "C02", _("dual recording or disclosure missing")
    C03 = "C03", _("excessive trading")
    C04 = "C04", _("concentration over limit")
    C05 = "C05", _("suspected structuring (handed to AML)")
    C06 = "C06", _("access beyond authority")
    C07 = "C07", _("induced or repeated assessments")
    C08 = "C08", _("misleading sale")
    C99 = "C99", _("other violation")
    F01 = "F01", _("wrong data")
    F02 = "F02", _("rule's reading")
    F03 = "F03", _("customer's own initiative, fully warned")
    F04 = "F04", _("reasonable explanation")
    F05 = "F05", _("whitelisted")
    F99 = "F99", _("other false positive")
    K01 = "K01", _("reported")
    K02 = "K02", _("exempt from reporting")
    K03 = "K03", _("duplicate")
    K04 = "K04", _("trade cancelled")
    K05 = "K05", _("remedied")
    K06 = "K06", _("handed over")


CODE_LETTER = {AlertStatus.CONFIRMED: "C", AlertStatus.FALSE_POSITIVE: "F", AlertStatus.CLOSED: "K"}


class Shelf(models.TextChoices):
    """Where in the queue an alert lies."""

    OPEN = "o", _("open")
    ASIDE = "a", _("put aside")
    DONE = "d", _("disposed of")


SET_CHARS = 120  # of a set of rules or subtypes that the queue's indices hold


class WokenBy(models.TextChoices):
    """Why an alert is back with its officer: it was put aside, or put forward to a second officer."""

    TIME = "time", _("its time has come")
    LEVEL = "level", _("it was escalated")
    OFFICER = "officer", _("an officer took it up again")
    RETURNED = "returned", _("returned by a second officer")


class RiskAlert(models.Model):
    """One case for an officer: a customer's merged hits, or an advisor's conduct of one day.

    merge_slot: the customer (`customer:dq` for data quality) while further hits may join, then NULL for good. Unique
    per tenant: MariaDB has no conditional unique constraint, and NULLs do not clash. The anchors that decide which
    alert a day's repeats join are on the hits.
    """

    alert_id = IdField(_("alert"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    alert_type = models.CharField(_("type"), max_length=16, choices=AlertType, default=AlertType.EVENT)
    status = models.CharField(_("status"), max_length=16, choices=AlertStatus, default=AlertStatus.PENDING)
    version = models.PositiveIntegerField(_("version"), default=1)
    customer_id = IdField(_("customer"), blank=True, default="")
    advisor_id = IdField(_("advisor"), blank=True, default="")
    merge_slot = IdField(max_length=72, null=True, blank=True, editable=False)
    score = models.PositiveSmallIntegerField(_("score"))
    subtypes = CanonicalJSONField(_("subtypes"), default=list, kind=texts)
    rule_ids = CanonicalJSONField(_("rules"), default=list, kind=texts)
    hit_count = models.PositiveIntegerField(_("hits"), default=1)
    escalation_level = models.CharField(
        _("level"), max_length=8, choices=EscalationLevel, default=EscalationLevel.NONE, blank=True
    )
    payload = CanonicalJSONField(_("payload"), default=dict, kind=json_object)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("assignee"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    parent = models.ForeignKey(
        "self", verbose_name=_("follow-up of"), null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    disposition_code = models.CharField(_("disposition"), max_length=3, choices=DispositionCode, blank=True, default="")
    disposition_text = models.TextField(_("reason"), blank=True, default="")
    disposed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("disposed by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    disposed_at = models.DateTimeField(_("disposed"), null=True, blank=True)
    # When an officer last called it a violation; stays when its follow-up is done, goes when it is reopened.
    confirmed_at = models.DateTimeField(_("confirmed"), null=True, blank=True)
    # Until then the same customer, rule and product open no new alert (RISK.md 3, "Quiet period").
    quiet_until = models.DateTimeField(_("quiet until"), null=True, blank=True)
    # A disposition that waits for a second officer, while the status is `escalated`; kept when it was approved.
    proposed_status = models.CharField(
        _("proposed outcome"), max_length=16, choices=AlertStatus, blank=True, default=""
    )
    proposed_code = models.CharField(_("proposed code"), max_length=3, choices=DispositionCode, blank=True, default="")
    proposed_text = models.TextField(_("proposed reason"), blank=True, default="")
    proposed_quiet_days = models.PositiveSmallIntegerField(_("proposed quiet period"), default=0)
    proposed_hash = models.CharField(_("evidence that was judged"), max_length=64, blank=True, default="")
    proposed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("proposed by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    proposed_at = models.DateTimeField(_("proposed"), null=True, blank=True)
    # Two officers have decided about it: once reopened, it takes two again.
    four_eyes = models.BooleanField(_("four eyes"), default=False)
    # Put aside by an officer. The clock runs on.
    snoozed_until = models.DateTimeField(_("snoozed until"), null=True, blank=True)
    woken_at = models.DateTimeField(_("woken"), null=True, blank=True)
    woken_by = models.CharField(_("woken because"), max_length=8, choices=WokenBy, blank=True, default="")
    # By when to claim and to dispose (RISK.md 3, "Escalation"), for sorting and for the sweep. Empty where there is no
    # limit (low alerts need no claim, faults in the data neither), and until the next sweep where holidays changed.
    claim_due_at = models.DateTimeField(_("to be claimed by"), null=True, blank=True)
    dispose_due_at = models.DateTimeField(_("to be disposed of by"), null=True, blank=True)
    opened_at = models.DateTimeField(_("opened"), default=now)
    reopened_at = models.DateTimeField(_("reopened"), null=True, blank=True)
    updated_at = models.DateTimeField(_("updated"), default=now)
    # What the officers' queue is cut and sorted by, worked out by the database whoever writes the row: never read them
    # of an instance that was saved since it was read.
    # A fault that was mended has no live hit left, and nobody disposes of it.
    shelf = models.GeneratedField(
        expression=models.Case(
            models.When(status__in=DISPOSED, then=models.Value(Shelf.DONE.value)),
            models.When(alert_type=AlertType.DATA_QUALITY, hit_count=0, then=models.Value(Shelf.DONE.value)),
            models.When(snoozed_until__isnull=False, then=models.Value(Shelf.ASIDE.value)),
            default=models.Value(Shelf.OPEN.value),
        ),
        output_field=models.CharField(max_length=1, choices=Shelf),
        db_persist=True,
    )
    # The next limit of an open alert (deadlines.due_of), its opening while it has none; when it was disposed of.
    queue_at = models.GeneratedField(
        expression=models.Case(
            models.When(status__in=DISPOSED, then=Coalesce("disposed_at", "opened_at")),
            models.When(status=AlertStatus.PENDING, then=Coalesce("claim_due_at", "dispose_due_at", "opened_at")),
            default=Coalesce("dispose_due_at", "opened_at"),
        ),
        output_field=models.DateTimeField(),
        db_persist=True,
    )
    # The beginning of `rule_ids` and `subtypes` as they are stored: alerts with one set of them lie together.
    rule_set = models.GeneratedField(
        expression=Left("rule_ids", SET_CHARS), output_field=IdField(max_length=SET_CHARS), db_persist=True
    )
    subtype_set = models.GeneratedField(
        expression=Left("subtypes", SET_CHARS), output_field=IdField(max_length=SET_CHARS), db_persist=True
    )

    class Meta:
        app_label = "risk"
        db_table = "risk_alert"
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-opened_at"]
        permissions = [
            ("dispose_alert", _("May claim and dispose of alerts")),
            ("review_alert", _("May approve another officer's disposition")),
            ("view_data_quality", _("May see alerts about faults in the data")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "merge_slot"], name="risk_alert_merge_slot"),
        ]
        indexes = [
            # the queue by due: its tabs, then each filter (risk.console.queue). The key, alert_id, ends every index.
            models.Index(fields=["tenant", "alert_type", "shelf", "queue_at", "alert_id"], name="risk_alert_tab"),
            models.Index(fields=["tenant", "alert_type", "status", "queue_at", "alert_id"], name="risk_alert_state"),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "escalation_level", "queue_at", "alert_id"],
                name="risk_alert_level",
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "score", "queue_at", "alert_id"], name="risk_alert_scores"
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "rule_set", "queue_at", "alert_id"], name="risk_alert_rules"
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "subtype_set", "queue_at", "alert_id"],
                name="risk_alert_subtypes",
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "assignee", "queue_at", "alert_id"],
                name="risk_alert_assignee",
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "advisor_id", "queue_at", "alert_id"],
                name="risk_alert_of_advisor",
            ),
            # of those that came back: why (what was returned, what woke by itself)
            models.Index(
                fields=["tenant", "alert_type", "shelf", "woken_by", "queue_at", "alert_id"], name="risk_alert_back"
            ),
            models.Index(
                fields=["tenant", "alert_type", "shelf", "disposition_code", "queue_at", "alert_id"],
                name="risk_alert_codes",
            ),
            # the queue: what became of a rule's alerts
            models.Index(
                fields=["tenant", "alert_type", "status", "rule_set", "queue_at", "alert_id"],
                name="risk_alert_outcomes",
            ),
            # the overview: open alerts by level and age, counted in the index alone
            models.Index(
                fields=["tenant", "alert_type", "shelf", "escalation_level", "opened_at"], name="risk_alert_ages"
            ),
            # search by the trace id under which an alert was opened
            models.Index(fields=["tenant", "trace_id"], name="risk_alert_trace"),
            # open alerts of a tenant, highest score first
            models.Index(fields=["tenant", "status", "-score"], name="risk_alert_queue"),
            # a customer's earlier alerts on the alert page
            models.Index(fields=["tenant", "customer_id", "-opened_at"], name="risk_alert_customer"),
            # the risk agent's list, newest first, in keyset pages
            models.Index(fields=["tenant", "opened_at", "alert_id"], name="risk_alert_opened"),
            # an advisor's alerts: search, and earlier conduct on the alert page
            models.Index(fields=["tenant", "advisor_id", "-opened_at"], name="risk_alert_advisor"),
            # the sweep of escalations over every tenant, and a queue sorted by due
            models.Index(fields=["status", "tenant", "dispose_due_at"], name="risk_alert_dispose_due"),
            models.Index(fields=["status", "tenant", "claim_due_at"], name="risk_alert_claim_due"),
            # whether the same was confirmed of a customer before
            models.Index(fields=["tenant", "customer_id", "confirmed_at"], name="risk_alert_confirmed"),
            # the sweep of alerts whose time aside is over
            models.Index(fields=["snoozed_until"], name="risk_alert_snoozed"),
        ]

    def __str__(self) -> str:
        return self.alert_id


class HitState(models.TextChoices):
    LIVE = "live", _("live")
    SUPERSEDED = "superseded", _("superseded")
    WITHDRAWN = "withdrawn", _("withdrawn")
    CANCELLED = "cancelled", _("trade cancelled")


class RiskAlertHit(models.Model):
    """One rule's finding. A re-evaluation with other figures adds a revision; nothing is overwritten.

    live_key: the evidence key while this revision is the live one, NULL otherwise; unique per tenant and rule, so
    that two scanners cannot both record the same finding. anchor: customer:rule:business day on the first hit of
    that day, NULL on repeats; unique per tenant: it decides which alert the day's repeats join. alert_version: the
    alert's version with which it came, so that an officer who saw an earlier one is told of it; NULL while it is no
    part of what was judged, because it came after the disposition.
    """

    tenant = IdField(_("tenant"), default="default")
    alert = models.ForeignKey(RiskAlert, verbose_name=_("alert"), on_delete=models.PROTECT, related_name="hits")
    rule_id = models.CharField(_("rule"), max_length=16)
    rule_version = models.PositiveIntegerField(_("rule version"))
    evidence_key = IdField(_("evidence"), max_length=200)
    revision = models.PositiveIntegerField(_("revision"), default=1)
    live_key = IdField(max_length=200, null=True, blank=True, editable=False)
    anchor = IdField(max_length=200, null=True, blank=True, editable=False)
    state = models.CharField(_("state"), max_length=12, choices=HitState, default=HitState.LIVE)
    after_disposition = models.BooleanField(_("after disposition"), default=False)
    alert_version = models.PositiveIntegerField(_("since version"), null=True, blank=True, default=1)
    customer_id = IdField(_("customer"))
    advisor_id = IdField(_("advisor"), blank=True, default="")
    product_id = IdField(_("product"), blank=True, default="")
    trade_id = IdField(_("trade"))
    trade_version = models.PositiveIntegerField(_("trade version"))
    occurred_at = models.DateTimeField(_("traded"))
    score = models.PositiveSmallIntegerField(_("score"))
    subtypes = CanonicalJSONField(_("subtypes"), default=list, kind=texts)
    figures = CanonicalJSONField(_("figures"), default=dict, kind=json_object)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    detected_at = models.DateTimeField(_("detected"), default=now)

    class Meta:
        app_label = "risk"
        db_table = "risk_alert_hit"
        verbose_name = _("hit")
        verbose_name_plural = _("hits")
        ordering = ["occurred_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "rule_id", "live_key"], name="risk_hit_live"),
            models.UniqueConstraint(fields=["tenant", "rule_id", "evidence_key", "revision"], name="risk_hit_revision"),
            models.UniqueConstraint(fields=["tenant", "anchor"], name="risk_hit_anchor"),
        ]
        indexes = [
            # a re-scan compares all live hits of one customer
            models.Index(fields=["tenant", "customer_id", "state"], name="risk_hit_customer"),
            # a re-scan of an advisor's conduct compares the live hits of some days
            models.Index(fields=["tenant", "advisor_id", "rule_id", "occurred_at"], name="risk_hit_advisor"),
            # alerts with hits of the same product around the same days, on the alert page
            models.Index(fields=["tenant", "product_id", "occurred_at"], name="risk_hit_product"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_id} {self.evidence_key}"


class AlertAction(models.Model):
    """One act of an officer (or the system) on an alert: the timeline."""

    alert = models.ForeignKey(RiskAlert, verbose_name=_("alert"), on_delete=models.PROTECT, related_name="actions")
    action = models.CharField(_("action"), max_length=24)
    from_status = models.CharField(_("from"), max_length=16, choices=AlertStatus, blank=True, default="")
    to_status = models.CharField(_("to"), max_length=16, choices=AlertStatus, blank=True, default="")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("by"),
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
    )
    code = models.CharField(_("code"), max_length=3, choices=DispositionCode, blank=True, default="")
    text = models.TextField(_("text"), blank=True, default="")
    alert_version = models.PositiveIntegerField(_("version after"))
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    at = models.DateTimeField(_("at"), default=now)

    class Meta:
        app_label = "risk"
        db_table = "alert_action"
        verbose_name = _("action")
        verbose_name_plural = _("actions")
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.action} {self.alert_id}"  # type: ignore[attr-defined]


class AlertLook(models.Model):
    """Which version of an alert a person has last looked at, for what has come since. One row a person and alert."""

    alert = models.ForeignKey(RiskAlert, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    version = models.PositiveIntegerField()
    at = models.DateTimeField(default=now)

    class Meta:
        app_label = "risk"
        db_table = "risk_alert_look"
        verbose_name = _("look")
        verbose_name_plural = _("looks")
        default_permissions = ()
        constraints = [
            # also the way by which a page of the queue finds its reader's looks
            models.UniqueConstraint(fields=["alert", "person"], name="risk_alert_look_once"),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} {self.version}"  # type: ignore[attr-defined]


class AlertOutbox(models.Model):
    """An event that must reach the feed: written with the change it tells of, stamped and sent by the publisher.

    kind `alert`: `event` is the exact payload of risk:pub:alert. kind `update`: alert_id, status, assignee, level,
    version. seq: stamped per tenant by the publisher alone, after the commit, so that a resume never skips one.
    set_aside_at, set_aside_for: the row is damaged, so its number is told without it (a `void` frame); why, in words
    that hold nothing of the row. resent_at: the alert was told again since, as a later event.
    """

    class Kind(models.TextChoices):
        ALERT = "alert"
        UPDATE = "update"

    tenant = IdField()
    seq = models.PositiveBigIntegerField(null=True, blank=True)
    kind = models.CharField(max_length=8, choices=Kind)
    alert_id = IdField()
    event = CanonicalJSONField(default=dict)
    created_at = models.DateTimeField(default=now)
    published_at = models.DateTimeField(null=True, blank=True)
    set_aside_at = models.DateTimeField(null=True, blank=True)
    set_aside_for = models.CharField(max_length=200, blank=True, default="")
    resent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "alert_outbox"
        verbose_name = _("feed event")
        verbose_name_plural = _("feed events")
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["tenant", "seq"], name="alert_outbox_seq")]
        indexes = [
            # the publisher: what is not sent yet
            models.Index(fields=["published_at", "id"], name="alert_outbox_unsent"),
            # the checks, and publish_outbox --retry: what is set aside (few of all rows)
            models.Index(fields=["set_aside_at"], name="alert_outbox_set_aside"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.seq}"


class FeedHead(models.Model):
    """The last seq stamped in a tenant; its row is the publishers' lock."""

    tenant = IdField(primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "risk"
        db_table = "alert_feed_head"

    def __str__(self) -> str:
        return f"{self.tenant} {self.seq}"
