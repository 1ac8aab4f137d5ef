"""What officers keep of their own for the queue: views under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import IdField


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
