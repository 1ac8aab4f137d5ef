"""Days on which the house does not work as the weekday says. Edited in the admin, per tenant."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.fields import IdField


class Holiday(models.Model):
    """One exception to "Monday to Friday": a holiday, or a day at the weekend that is worked in return (调休)."""

    class Kind(models.TextChoices):
        HOLIDAY = "holiday", _("holiday")
        WORKDAY = "workday", _("worked in return")

    tenant = IdField(_("tenant"), default="default")
    day = models.DateField(_("day"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind, default=Kind.HOLIDAY)
    name = models.CharField(_("name"), max_length=64, blank=True, default="")

    class Meta:
        app_label = "risk"
        db_table = "risk_holiday"
        verbose_name = _("holiday")
        verbose_name_plural = _("holidays")
        ordering = ["day"]
        constraints = [
            # a day is one or the other; also serves "the exceptions between two days"
            models.UniqueConstraint(fields=["tenant", "day"], name="risk_holiday_day"),
        ]

    def __str__(self) -> str:
        return f"{self.day}"
