"""Versions of rules, per tenant. Without a row the figures in the rule's own file are in force as version 1."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField


class HandledJSONField(CanonicalJSONField):
    """JSON in rows that people mend by hand. What is no JSON is read as the text that it is: one damaged row must not
    keep the others from being read. Whoever uses the value looks what kind it is of."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return value


class RuleStatus(models.TextChoices):
    DRAFT = "draft", _("draft")
    SHADOW = "shadow", _("shadow")
    ACTIVE = "active", _("active")
    RETIRED = "retired", _("retired")  # was in force
    DROPPED = "dropped", _("dropped")  # never was, and never will be


class RiskRule(models.Model):
    """One version of a rule's parameters. params: its figures; one that is not there is the rule's own.

    Only a draft is edited: each edit raises `revision`, so that nobody activates what they have not read.
    active_slot, shadow_slot: the rule while this version is active (in shadow), NULL otherwise; unique per tenant, so
    that two activations at once cannot both succeed.
    is_on: whether the rule runs at all; a version that is not on switches it off.
    base_version: whose figures the draft began with. editors: ids of everybody who set figures; none of them activates.
    shadow_failures: customers and advisors that could not be evaluated in shadow.
    marks_due: whoever came while it took effect is still to be marked (marking.finish_marking).
    """

    tenant = IdField(_("tenant"), default="default")
    rule_id = models.CharField(_("rule"), max_length=16)
    version = models.PositiveIntegerField(_("version"))
    status = models.CharField(_("status"), max_length=8, choices=RuleStatus, default=RuleStatus.DRAFT)
    active_slot = models.CharField(max_length=16, null=True, blank=True, editable=False)
    shadow_slot = models.CharField(max_length=16, null=True, blank=True, editable=False)
    params = HandledJSONField(_("parameters"), default=dict)
    is_on = models.BooleanField(_("switched on"), default=True)
    reason = models.TextField(_("reason"), blank=True, default="")
    revision = models.PositiveIntegerField(_("revision"), default=1)
    base_version = models.PositiveIntegerField(_("made from version"), null=True, blank=True)
    editors = HandledJSONField(default=list, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("drafted by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    created_at = models.DateTimeField(_("drafted"), default=now)
    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("last edited by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    edited_at = models.DateTimeField(_("last edited"), null=True, blank=True)
    shadowed_at = models.DateTimeField(_("in shadow since"), null=True, blank=True)
    shadow_failures = models.PositiveIntegerField(default=0, editable=False)
    marks_due = models.BooleanField(default=False, editable=False)
    activated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("activated by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    activated_at = models.DateTimeField(_("activated"), null=True, blank=True)
    retired_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("retired by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    retired_at = models.DateTimeField(_("retired"), null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "risk_rule"
        verbose_name = _("rule version")
        verbose_name_plural = _("rule versions")
        ordering = ["rule_id", "-version"]
        permissions = [("activate_riskrule", "Can activate a rule version that another has drafted")]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "rule_id", "version"], name="risk_rule_version"),
            models.UniqueConstraint(fields=["tenant", "active_slot"], name="risk_rule_active"),
            models.UniqueConstraint(fields=["tenant", "shadow_slot"], name="risk_rule_shadow"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_id} v{self.version}"


class ShadowSide(models.TextChoices):
    BOTH = "both", _("both")
    SHADOW = "shadow", _("only in shadow")
    ACTIVE = "active", _("only in force")


class ShadowState(models.TextChoices):
    LIVE = "live", _("live")
    WITHDRAWN = "withdrawn", _("withdrawn")


class ShadowHit(models.Model):
    """What a shadow version says of one piece of evidence, beside what the version in force says of it.

    side: who finds it. A row of side `active` has the figures of the version in force: what the shadow would lose.
    state: withdrawn once neither finds it any more. Never an alert, never published.
    found_by: the shadow's own rule, or one that takes its figures (RISK-004 those of RISK-003).
    """

    tenant = IdField(_("tenant"), default="default")
    rule = models.ForeignKey(RiskRule, verbose_name=_("rule version"), on_delete=models.CASCADE, related_name="+")
    found_by = models.CharField(_("rule"), max_length=16)
    evidence_key = IdField(_("evidence"), max_length=200)
    customer_id = IdField(_("customer"), blank=True, default="")
    advisor_id = IdField(_("advisor"), blank=True, default="")
    trade_id = IdField(_("trade"))
    trade_version = models.PositiveIntegerField(_("trade version"))
    occurred_at = models.DateTimeField(_("traded"))
    score = models.PositiveSmallIntegerField(_("score"))
    subtypes = CanonicalJSONField(_("subtypes"), default=list)
    figures = CanonicalJSONField(_("figures"), default=dict)
    side = models.CharField(_("side"), max_length=8, choices=ShadowSide)
    state = models.CharField(_("state"), max_length=12, choices=ShadowState, default=ShadowState.LIVE)
    first_seen = models.DateTimeField(_("first seen"), default=now)
    changed_at = models.DateTimeField(_("changed"), default=now)

    class Meta:
        app_label = "risk"
        db_table = "risk_shadow_hit"
        verbose_name = _("hit in shadow")
        verbose_name_plural = _("hits in shadow")
        ordering = ["-occurred_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "found_by", "evidence_key"], name="risk_shadow_evidence"),
        ]
        indexes = [
            # a scan compares one customer's rows
            models.Index(fields=["rule", "customer_id"], name="risk_shadow_customer"),
            # a scan of conduct compares one advisor's rows of some days
            models.Index(fields=["rule", "advisor_id", "occurred_at"], name="risk_shadow_advisor"),
            # the version's page counts and lists by side
            models.Index(fields=["rule", "state", "side", "occurred_at"], name="risk_shadow_side"),
            # an erasure counts a customer's rows
            models.Index(fields=["tenant", "customer_id"], name="risk_shadow_person"),
        ]

    def __str__(self) -> str:
        return f"{self.found_by} {self.evidence_key}"


class BacktestState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


class Backtest(models.Model):
    """One run of a version over past trades, asked for on its page. report: what it found (backtest.Report.as_json).

    revision: of the draft whose figures were run. beat_at: when the run was last heard of; silent ones start anew.
    """

    tenant = IdField(_("tenant"), default="default")
    rule = models.ForeignKey(RiskRule, verbose_name=_("rule version"), on_delete=models.CASCADE, related_name="+")
    revision = models.PositiveIntegerField(_("revision"))
    since = models.DateTimeField(_("from"), null=True, blank=True)
    until = models.DateTimeField(_("to"), null=True, blank=True)
    state = models.CharField(_("state"), max_length=8, choices=BacktestState, default=BacktestState.WAITING)
    done = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    report = CanonicalJSONField(default=dict)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("asked by"), on_delete=models.PROTECT, related_name="+"
    )
    asked_at = models.DateTimeField(_("asked"), default=now)
    beat_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "risk_backtest"
        verbose_name = _("backtest")
        verbose_name_plural = _("backtests")
        ordering = ["-id"]
        indexes = [
            # the worker looks for what waits
            models.Index(fields=["state", "id"], name="risk_backtest_state"),
        ]

    def __str__(self) -> str:
        return f"backtest {self.pk}"
