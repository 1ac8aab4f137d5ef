"""Tables of admission: limits, the ledger of budgets, blocks, pauses, fences."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import IdField
from guard.admission.fields import MoneyField


class LimitKind(models.TextChoices):
    RATE = "rate", _("calls a minute, of an actor and agent")
    HOURLY = "hourly", _("calls an hour, of an actor and action")
    ADDRESS = "ip", _("calls a minute, from one address")
    QUOTA = "quota", _("AI calls a day, of an actor")
    BUDGET = "budget", _("budget of a month, of the tenant")
    TENANT_RUNNING = "tenant_running", _("running calls of the tenant")
    USER_RUNNING = "user_running", _("running calls of an actor")


class AdmissionLimit(models.Model):
    """One version of one limit. A change is a new row with the next version, so that the table is its own history;
    `current` is 1 on the version in force and NULL on the others, and unique where it is not NULL.

    value: NULL means no limit. retired: the version that took the limit away; what is less specific counts then.
    """

    tenant = IdField(_("tenant"), default="default")
    agent = models.CharField(_("AI agent"), max_length=16, blank=True, default="", help_text=_("Empty: every agent."))
    actor_id = IdField(_("actor"), blank=True, default="", help_text=_("Empty: every actor."))
    action = IdField(_("action"), blank=True, default="", help_text=_("Of hourly limits. Empty: every action."))
    kind = models.CharField(_("limit"), max_length=16, choices=LimitKind)
    value = MoneyField(_("value"), null=True, blank=True, help_text=_("Empty: no limit."))
    version = models.PositiveIntegerField(_("version"), editable=False)
    current = models.PositiveSmallIntegerField(null=True, default=1, editable=False)
    retired = models.BooleanField(_("taken away"), default=False, editable=False)
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    changed_by = IdField(_("changed by"), editable=False)
    changed_at = models.DateTimeField(_("changed"), default=now, editable=False)

    class Meta:
        app_label = "guard"
        db_table = "admission_limit"
        verbose_name = _("limit")
        verbose_name_plural = _("limits")
        ordering = ["tenant", "kind", "agent", "actor_id", "action", "-version"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "kind", "agent", "actor_id", "action", "version"], name="admission_limit_version"
            ),
            models.UniqueConstraint(
                fields=["tenant", "kind", "agent", "actor_id", "action", "current"], name="admission_limit_current"
            ),
        ]
        # What is in force, read by every process when something has changed.
        indexes = [models.Index(fields=["current"], name="admission_limit_in_force")]

    def __str__(self) -> str:
        # Whom it is about may be a customer: pages show that with a mask, and this as it stands.
        return f"{self.tenant} #{self.pk} {self.kind}={self.value}"


class BudgetLedger(models.Model):
    """What was spent. INSERT only: triggers refuse anything else, a correction is a row of its own.

    number counts a tenant's rows of a month without a gap: whoever has seen number n and its sum has seen all before.
    """

    class Kind(models.TextChoices):
        CALL = "call", _("settled call")
        ADJUSTMENT = "adjustment", _("correction")

    tenant = IdField(_("tenant"))
    month = models.CharField(_("month"), max_length=7)
    number = models.PositiveBigIntegerField(_("number"))
    kind = models.CharField(_("kind"), max_length=16, choices=Kind, default=Kind.CALL)
    admission_id = IdField(_("admission"))
    amount = MoneyField(_("amount"))
    estimate = MoneyField(_("estimate"), null=True)
    actor_id = IdField(_("actor"))
    agent = models.CharField(_("AI agent"), max_length=16, blank=True, default="")
    action = IdField(_("action"), blank=True, default="")
    run_id = IdField(_("run"), blank=True, default="")
    day = models.DateField(_("business day"))
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    recorded_at = models.DateTimeField(_("recorded"), default=now)

    class Meta:
        app_label = "guard"
        db_table = "budget_ledger"
        verbose_name = _("ledger entry")
        verbose_name_plural = _("budget ledger")
        ordering = ["-id"]
        constraints = [
            # A call is settled once, whoever asks how often.
            models.UniqueConstraint(fields=["tenant", "admission_id"], name="budget_ledger_admission"),
            # The sum over a month, and the order of its rows.
            models.UniqueConstraint(fields=["tenant", "month", "number"], name="budget_ledger_number"),
        ]
        # The calls of an actor's day, where Redis has lost its count.
        indexes = [models.Index(fields=["tenant", "actor_id", "day"], name="budget_ledger_day")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.month} #{self.number} {self.amount}"


class BudgetMonth(models.Model):
    """The sum over a tenant's ledger of one month, kept in the transactions that add to it: reading it is reading the
    ledger, whatever its length. Its row is the lock under which numbers are given."""

    tenant = IdField(_("tenant"))
    month = models.CharField(_("month"), max_length=7)
    number = models.PositiveBigIntegerField(default=0)
    spent = MoneyField(default=0)
    # Since when Redis has not been told: set in the transaction of what it was not told, empty once it was.
    untold_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "guard"
        db_table = "budget_month"
        constraints = [models.UniqueConstraint(fields=["tenant", "month"], name="budget_month_one")]
        # What is to be told, looked for by every process and by the sweep.
        indexes = [models.Index(fields=["untold_at"], name="budget_month_untold")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.month} {self.spent}"


class ActorBlock(models.Model):
    """An actor that may do nothing until `expires_at`. `open` is 1 while it counts and NULL afterwards, so that an
    actor has at most one."""

    tenant = IdField(_("tenant"))
    actor_id = IdField(_("actor"))
    code = models.CharField(_("code"), max_length=32)
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    blocked_by = IdField(_("blocked by"))
    repeat = models.PositiveIntegerField(_("time"), default=1, help_text=_("Which time within 30 days."))
    started_at = models.DateTimeField(_("since"), default=now)
    expires_at = models.DateTimeField(_("until"))
    ended_at = models.DateTimeField(_("ended"), null=True)
    lifted_by = IdField(_("lifted by"), blank=True, default="")
    open = models.PositiveSmallIntegerField(null=True, default=1)

    class Meta:
        app_label = "guard"
        db_table = "actor_block"
        verbose_name = _("block of an actor")
        verbose_name_plural = _("blocks of actors")
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["tenant", "actor_id", "open"], name="actor_block_open")]
        indexes = [
            # What is in force, read by every process; what is over and not told yet.
            models.Index(fields=["open", "expires_at"], name="actor_block_in_force"),
            # How often an actor was blocked of late.
            models.Index(fields=["tenant", "actor_id", "started_at"], name="actor_block_actor"),
            # What was lifted of late: the copy in Redis must be gone too.
            models.Index(fields=["ended_at"], name="actor_block_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} #{self.pk} {self.code}"  # without the actor, who may be a customer


class AgentPause(models.Model):
    """An agent that starts nothing for a tenant until `expires_at` (None: until somebody lifts it). `open` as with
    blocks."""

    tenant = IdField(_("tenant"))
    agent = models.CharField(_("AI agent"), max_length=16)
    reason = models.CharField(_("reason"), max_length=200)
    paused_by = IdField(_("paused by"))
    started_at = models.DateTimeField(_("since"), default=now)
    expires_at = models.DateTimeField(_("until"), null=True)
    ended_at = models.DateTimeField(_("ended"), null=True)
    lifted_by = IdField(_("lifted by"), blank=True, default="")
    open = models.PositiveSmallIntegerField(null=True, default=1)

    class Meta:
        app_label = "guard"
        db_table = "agent_pause"
        verbose_name = _("pause of an AI agent")
        verbose_name_plural = _("pauses of AI agents")
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["tenant", "agent", "open"], name="agent_pause_open")]
        indexes = [models.Index(fields=["ended_at"], name="agent_pause_ended")]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent}"


class Fence(models.Model):
    """A session's fencing numbers. ceiling: the highest that Redis may give. issued: the newest that a run was admitted
    with; no other writes. seen: the highest whose holder has written."""

    tenant = IdField(_("tenant"))
    session_id = IdField(_("session"))
    ceiling = models.PositiveBigIntegerField(default=0)
    issued = models.PositiveBigIntegerField(default=0)
    seen = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "guard"
        db_table = "fence"
        constraints = [models.UniqueConstraint(fields=["tenant", "session_id"], name="fence_one")]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.session_id} {self.seen}"
