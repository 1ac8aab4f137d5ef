"""Who may call: one row per key of an agent service."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import IdField
from config.base.ids import new_id


class Agent(models.TextChoices):
    CUSTOMER = "customer", _("customer agent")
    ADVISOR = "advisor", _("advisor agent")
    ANALYST = "analyst", _("analyst agent")
    RISK = "risk", _("risk agent")


class AgentPrincipal(models.Model):
    """An agent service's key. The key itself is shown once and kept only as a SHA-256 digest:
    it has 256 random bits, so a slow hash would protect nothing."""

    principal_id = IdField(_("principal"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    agent = models.CharField(_("agent"), max_length=16, choices=Agent)
    actor_id = IdField(_("bound actor"), blank=True, default="", help_text=_("Empty: each request names its actor."))
    note = models.CharField(_("note"), max_length=200, blank=True, default="")
    key_digest = IdField(_("key digest"), unique=True, editable=False)
    created_at = models.DateTimeField(_("created"), default=now, editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    class Meta:
        app_label = "guard"
        db_table = "agent_principal"
        verbose_name = _("agent key")
        verbose_name_plural = _("agent keys")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent} {self.principal_id}"


class StaffMember(models.Model):
    """The tenant that a person of the console works for."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    tenant = IdField(_("tenant"), default="default")

    class Meta:
        app_label = "guard"
        db_table = "staff_member"
        verbose_name = _("staff member")
        verbose_name_plural = _("staff members")

    def __str__(self) -> str:
        return f"{self.user_id} {self.tenant}"  # type: ignore[attr-defined]
