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
    # The key that rotation put in its place; it can be rotated once.
    replaced_by = IdField(_("replaced by"), blank=True, default="", db_default="", editable=False)
    # Behind by up to LAST_USED_SECONDS: a use costs no write.
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        app_label = "guard"
        db_table = "agent_principal"
        verbose_name = _("agent key")
        verbose_name_plural = _("agent keys")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent} {self.principal_id}"


class TokenFamily(models.Model):
    """All tokens that descend from one exchange of a key: the refresh token of the present generation is the only one
    that is taken. It does not say for whom they are: the tokens do, and an erased customer leaves nothing here."""

    family_id = IdField(primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"))
    principal_id = IdField(_("principal"))
    generation = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(_("created"), default=now)
    refreshed_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(_("expires"))  # of the refresh token of the present generation
    revoked_at = models.DateTimeField(_("revoked"), null=True)

    class Meta:
        app_label = "guard"
        db_table = "token_family"
        verbose_name = _("token family")
        verbose_name_plural = _("token families")
        # prune
        indexes = [models.Index(fields=["expires_at"], name="token_family_expires")]

    def __str__(self) -> str:
        return self.family_id


class RevokedToken(models.Model):
    """The blacklist that `guard:token:{jti}` mirrors: a token's jti, or the family of all of its tokens."""

    jti = IdField(primary_key=True)
    tenant = IdField(_("tenant"))
    revoked_at = models.DateTimeField(_("revoked"), default=now)
    expires_at = models.DateTimeField(_("expires"))  # of the last token that the row stops

    class Meta:
        app_label = "guard"
        db_table = "revoked_token"
        verbose_name = _("revoked token")
        verbose_name_plural = _("revoked tokens")
        # prune
        indexes = [models.Index(fields=["expires_at"], name="revoked_token_expires")]

    def __str__(self) -> str:
        return self.jti


class LoginCount(models.Model):
    """Failed logins of an address or an account: what the counters in Redis are made from when it is away.

    scope: as in `guard:login:{scope}:{date}`: an address in hex, or `u-` and a keyed hash of the account.
    """

    scope = IdField(primary_key=True)
    failures = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField()  # of the window, or of the lock that came of it

    class Meta:
        app_label = "guard"
        db_table = "login_count"
        verbose_name = _("failed logins")
        verbose_name_plural = _("failed logins")
        # prune
        indexes = [models.Index(fields=["ends_at"], name="login_count_ends")]

    def __str__(self) -> str:
        return self.scope


class StaffMember(models.Model):
    """The tenant that a person of the console works for, and whom they are to the AI agents: who writes as advisor
    A-17 does not review what A-17 wrote, whatever their login."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    tenant = IdField(_("tenant"), default="default")
    actor_id = IdField(_("acts as"), blank=True, default="")

    class Meta:
        app_label = "guard"
        db_table = "staff_member"
        verbose_name = _("staff member")
        verbose_name_plural = _("staff members")
        permissions = [("unmask_customer", "Can see a customer's name and id in clear")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.tenant}"  # type: ignore[attr-defined]
