"""What officers keep of their own for the queue: views under a name; and what the overview keeps counted."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField


class SavedView(models.Model):
    """A tab, its filters and columns under a name. It is its owner's; one that a manager shares is everybody's.

    query: as it stands in the queue's address, without customers and search words: nothing here names a person.
    """

    tenant = IdField(_("tenant"), default="default")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.PROTECT, related_name="+"
    )
    name = models.CharField(_("name"), max_length=40)
    query = models.CharField(max_length=600)
    shared = models.BooleanField(_("shared"), default=False)
    updated_at = models.DateTimeField(_("updated"), default=now)

    class Meta:
        app_label = "risk"
        db_table = "risk_saved_view"
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        default_permissions = ()
        permissions = [("share_savedview", _("May share views of the queue"))]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "owner", "name"], name="risk_saved_view_name"),
        ]
        indexes = [
            # the views that everybody of a tenant sees
            models.Index(fields=["tenant", "shared"], name="risk_saved_view_shared"),
        ]

    def __str__(self) -> str:
        return self.name


class AlertTally(models.Model):
    """What was opened and disposed of in one hour or one business day, counted when it was over and now and then again
    (tallies.py): what is past is added up, never read through. Figures alone, nothing that names a person.

    begins: of a day its first instant in BUSINESS_TIME_ZONE, of an hour a whole number of hours after that.
    counts: `opened` [[type, rules, n], ...] and `disposed` [[type, status, code, violation, rules, n], ...].
    """

    class Grain(models.TextChoices):
        HOUR = "h"
        DAY = "d"

    tenant = IdField(default="default")
    grain = models.CharField(max_length=1, choices=Grain)
    begins = models.DateTimeField()
    counts = CanonicalJSONField(default=dict)
    counted_at = models.DateTimeField(default=now)

    class Meta:
        app_label = "risk"
        db_table = "risk_alert_tally"
        verbose_name = _("tally")
        verbose_name_plural = _("tallies")
        default_permissions = ()
        constraints = [
            # also the way by which the overview reads those of a span
            models.UniqueConstraint(fields=["tenant", "grain", "begins"], name="risk_alert_tally_once"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.grain} {self.begins:%Y-%m-%d %H:%M}"
