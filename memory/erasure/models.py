"""Tables of erasure: who may not come back, who must not go, and what was done."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField


class CustomerTombstone(models.Model):
    """Refuses whoever writes for an erased customer, without naming the customer: `subject` is a keyed hash.

    at: since when; NULL is no tombstone. Such a row is only what an erasure and a legal hold lock, so that one of
    them comes first. A tenant that is being cleaned up has a row too, until that is done.
    """

    subject = IdField(_("subject"), unique=True, editable=False)
    at = models.DateTimeField(_("erased"), null=True, blank=True, editable=False)

    class Meta:
        app_label = "memory"
        db_table = "customer_tombstone"
        verbose_name = _("tombstone")
        verbose_name_plural = _("tombstones")

    def __str__(self) -> str:
        return self.subject[:12]


class LegalHold(models.Model):
    """While one is in force, nothing of the customer is erased."""

    tenant = IdField(_("tenant"), default="default")
    customer_id = IdField(_("customer"))
    reason = models.CharField(_("reason"), max_length=500)
    placed_by = models.CharField(_("placed by"), max_length=150)
    placed_at = models.DateTimeField(_("placed"), default=now)
    released_by = models.CharField(_("released by"), max_length=150, blank=True, default="")
    released_at = models.DateTimeField(_("released"), null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "legal_hold"
        verbose_name = _("legal hold")
        verbose_name_plural = _("legal holds")
        ordering = ["-id"]
        indexes = [
            # each step of an erasure: is the customer held? Of a tenant's clean-up: is anybody?
            models.Index(fields=["tenant", "released_at", "customer_id"], name="legal_hold_in_force"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.pk}"


class ErasureReceipt(models.Model):
    """What one erasure removed, where; what was kept, and on what ground; what is still to be done.

    removed: {part: {what: how many}}, counted in the transactions that removed it, so a killed run counts too.
    kept: {what: {"ground", "rows"?}}. remains: {part: what is open there}, most often Redis that was away.
    again: {part: ...}, what is removed from Redis once more a little later, for a Redis that crashes may forget the
    last second of what it did.
    """

    class Scope(models.TextChoices):
        CUSTOMER = "customer", _("a customer")
        TENANT = "tenant", _("a tenant")

    class State(models.TextChoices):
        RUNNING = "running", _("running, or interrupted: run it again")
        HELD = "held", _("stopped by a legal hold")
        OPEN = "open", _("something is left to do")
        DONE = "done", _("done")

    tenant = IdField(_("tenant"))
    scope = models.CharField(_("of"), max_length=16, choices=Scope)
    subject = IdField(_("subject"), help_text=_("A keyed hash of tenant and customer."))
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.RUNNING)
    by = models.CharField(_("by"), max_length=150)
    reason = models.CharField(_("reason"), max_length=500, blank=True, default="")
    started_at = models.DateTimeField(_("started"), default=now)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    removed = CanonicalJSONField(_("removed"), default=dict)
    kept = CanonicalJSONField(_("kept"), default=dict)
    remains = CanonicalJSONField(_("still to do"), default=dict)
    again = CanonicalJSONField(default=dict, editable=False)
    again_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        app_label = "memory"
        db_table = "erasure_receipt"
        verbose_name = _("erasure receipt")
        verbose_name_plural = _("erasure receipts")
        ordering = ["-id"]
        indexes = [
            # the next run finds what the last one did
            models.Index(fields=["subject"], name="erasure_receipt_subject"),
            # beat: those with something left to do
            models.Index(fields=["state"], name="erasure_receipt_state"),
            models.Index(fields=["again_at"], name="erasure_receipt_again"),
            # console
            models.Index(fields=["tenant", "id"], name="erasure_receipt_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.subject[:12]}"
