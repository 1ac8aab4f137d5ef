"""What fencing numbers were leased to Redis: the only thing about locks that must outlive it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.fields import IdField


class LockFence(models.Model):
    """ceiling: the highest number that was ever leased; no lock has a higher one, and each next lease begins above."""

    series = IdField(_("series"), unique=True, editable=False)
    ceiling = models.PositiveBigIntegerField(_("ceiling"), default=0, editable=False)

    class Meta:
        app_label = "guard"
        db_table = "lock_fence"
        verbose_name = _("fencing numbers of locks")
        verbose_name_plural = _("fencing numbers of locks")

    def __str__(self) -> str:
        return f"{self.series} {self.ceiling}"
