"""Versions of rules, per tenant. Without a row the figures in the rule's own file are in force as version 1."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField


class RuleStatus(models.TextChoices):
    DRAFT = "draft", _("draft")
    SHADOW = "shadow", _("shadow")
    ACTIVE = "active", _("active")
    RETIRED = "retired", _("retired")


class RiskRule(models.Model):
    """One version of a rule's parameters. params: what differs from the rule's own figures.

    active_slot: the rule while this version is active, NULL otherwise; unique per tenant, so that two activations
    at once cannot both succeed.
    """

    tenant = IdField(_("tenant"), default="default")
    rule_id = models.CharField(_("rule"), max_length=16)
    version = models.PositiveIntegerField(_("version"))
    status = models.CharField(_("status"), max_length=8, choices=RuleStatus, default=RuleStatus.DRAFT)
    active_slot = models.CharField(max_length=16, null=True, blank=True, editable=False)
    params = CanonicalJSONField(_("parameters"), default=dict)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("drafted by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    created_at = models.DateTimeField(_("drafted"), default=now)
    activated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("activated by"), null=True, blank=True,
        on_delete=models.PROTECT, related_name="+",
    )  # fmt: skip
    activated_at = models.DateTimeField(_("activated"), null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "risk_rule"
        verbose_name = _("rule version")
        verbose_name_plural = _("rule versions")
        ordering = ["rule_id", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "rule_id", "version"], name="risk_rule_version"),
            models.UniqueConstraint(fields=["tenant", "active_slot"], name="risk_rule_active"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_id} v{self.version}"
