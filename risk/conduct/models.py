"""What the scan of advisors' conduct remembers between two rounds, and the campaigns that it lets pass.

All but Campaign can be made anew from `audit_log` (`scan_trades --all`); what was found is in risk_alert_hit.
"""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField
from config.base.ids import ID_PATTERN


class Campaign(models.Model):
    """A product that the house itself promotes between two days, both included: to push it then is no finding."""

    tenant = IdField(_("tenant"), default="default")
    product_id = IdField(_("product"))
    starts_on = models.DateField(_("first day"))
    ends_on = models.DateField(_("last day"))
    name = models.CharField(_("name"), max_length=100)

    class Meta:
        app_label = "risk"
        db_table = "risk_campaign"
        verbose_name = _("sales campaign")
        verbose_name_plural = _("sales campaigns")
        ordering = ["-starts_on", "product_id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "product_id", "starts_on"], name="risk_campaign_start"),
        ]

    def __str__(self) -> str:
        return f"{self.product_id} {self.starts_on}"

    def clean(self) -> None:
        """What the service refuses, told by the form. Errors: ValidationError."""
        if not ID_PATTERN.match(self.product_id or ""):
            raise ValidationError({"product_id": _("Use 1 to 64 of A-Z a-z 0-9 _ . -")})
        if self.starts_on and self.ends_on and self.ends_on < self.starts_on:
            raise ValidationError({"ends_on": _("The last day lies before the first.")})


class TradeRequest(models.Model):
    """A reported request for a trade, and what was known of that trade when it was last looked up.

    An index of `audit_log` by trade: the log itself has none, and is not ours to change.
    """

    tenant = IdField()
    audit_id = models.BigIntegerField(unique=True)
    advisor_id = IdField()
    trade_id = IdField()
    at = models.DateTimeField()  # of the audit row
    # Of the trade's final version; empty until the core has it.
    customer_id = IdField(blank=True, default="")
    traded_at = models.DateTimeField(null=True, blank=True)
    seen = models.CharField(max_length=64, blank=True, default="")  # hash of all that the rule reads of the trade
    overdue = models.BooleanField(default=False)  # not there after a day, and told
    next_look = models.DateTimeField(null=True, blank=True)  # NULL: found, and followed by its customer's changes

    class Meta:
        app_label = "risk"
        db_table = "conduct_request"
        indexes = [
            # what is still to be looked up, soonest first
            models.Index(fields=["next_look", "id"], name="conduct_request_next"),
            # a customer's facts changed: which requests speak of it
            models.Index(fields=["tenant", "customer_id"], name="conduct_request_customer"),
            # a late refusal: which of the advisor's trades came within a day of it
            models.Index(fields=["tenant", "advisor_id", "traded_at"], name="conduct_request_traded"),
            # a campaign or a holiday was edited: which advisors had requests then
            models.Index(fields=["tenant", "at"], name="conduct_request_at"),
        ]

    def __str__(self) -> str:
        return f"{self.audit_id}"


class ConductChange(models.Model):
    """The mark "something changed about this advisor between two instants"; deleted after the evaluation that saw it.

    As `core_change` for customers: an advisor may have several; a scanner claims all of them at once.
    """

    tenant = IdField()
    advisor_id = IdField()
    since = models.DateTimeField()
    until = models.DateTimeField()
    claim = IdField(null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    at = models.DateTimeField(default=now)

    class Meta:
        app_label = "risk"
        db_table = "conduct_change"
        indexes = [
            # claim and release all rows of an advisor
            models.Index(fields=["tenant", "advisor_id"], name="conduct_change_advisor"),
        ]

    def __str__(self) -> str:
        return f"{self.advisor_id}"


class ConductCursor(models.Model):
    """How far `audit_log` has been read: every id up to `head` but those in `missing`, which may yet come.

    missing: [[first, last, microseconds since 1970 when first missed], …]. One row; its lock is the readers'.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    head = models.BigIntegerField(default=0)
    missing = CanonicalJSONField(default=list)

    class Meta:
        app_label = "risk"
        db_table = "conduct_cursor"

    def __str__(self) -> str:
        return f"{self.head}"
