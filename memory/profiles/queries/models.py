"""What analysts asked of the core's facts, and who may see personal columns.

`analytics_query_log` and `analytics_query_end` accept INSERT only (guard/audit/triggers.py): the first is written
before a statement runs, the second when it has ended, so a process that is killed in between leaves a row that says
"started" and none that says how it ended. The statement's own text may hold a customer's name: it has a table of its
own, from which it can be erased; the log keeps the normalised form, which holds no literal.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField, WholeTextField
from config.base.ids import new_id


class QueryDecision(models.TextChoices):
    ALLOWED = "allowed", _("allowed")
    REFUSED = "refused", _("refused")


class QueryMode(models.TextChoices):
    RUN = "run", _("run")
    CHECK = "check", _("checked only")


class QueryOutcome(models.TextChoices):
    DONE = "done", _("done")
    TIMEOUT = "timeout", _("timed out")
    TOO_LARGE = "too_large", _("too large")
    FAILED = "failed", _("failed")


class AnalyticsQueryLog(models.Model):
    """One statement, as it was decided. tables and columns: of the core, whatever they were called in the statement."""

    query_id = IdField(_("query"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"))
    at = models.DateTimeField(_("at"), default=now)
    actor_id = IdField(_("analyst"))
    principal_id = IdField(_("principal"), blank=True, default="")
    mode = models.CharField(_("mode"), max_length=8, choices=QueryMode)
    dialect = models.CharField(_("dialect"), max_length=16)
    decision = models.CharField(_("decision"), max_length=16, choices=QueryDecision)
    code = models.CharField(_("code"), max_length=32, blank=True, default="")
    # of the normalised form; empty, as that, where the statement could not be understood
    fingerprint = models.CharField(_("fingerprint"), max_length=64, blank=True, default="")
    normalised = WholeTextField(_("normalised"), blank=True, default="")
    tables = CanonicalJSONField(_("tables"), default=list)
    columns = CanonicalJSONField(_("columns"), default=list)
    personal = CanonicalJSONField(_("personal columns"), default=list)
    row_limit = models.PositiveIntegerField(_("row limit"), default=0)
    seconds_limit = models.FloatField(_("time limit"), default=0)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "analytics_query_log"
        verbose_name = _("analyst's query")
        verbose_name_plural = _("analysts' queries")
        ordering = ["-query_id"]
        indexes = [
            # an analyst's own, newest first
            models.Index(fields=["tenant", "actor_id", "query_id"], name="query_actor"),
            # console: the newest, the refused, every run of one statement
            models.Index(fields=["tenant", "query_id"], name="query_tenant"),
            models.Index(fields=["tenant", "decision", "query_id"], name="query_decision"),
            models.Index(fields=["tenant", "fingerprint", "query_id"], name="query_fingerprint"),
            # support: everything under one trace
            models.Index(fields=["trace_id"], name="query_trace"),
        ]

    def __str__(self) -> str:
        return self.query_id


class AnalyticsQueryEnd(models.Model):
    """How a statement ended. duration_ms: of the statement and the reading of its rows."""

    query_id = IdField(_("query"), primary_key=True)
    tenant = IdField(_("tenant"))
    at = models.DateTimeField(_("at"), default=now)
    outcome = models.CharField(_("outcome"), max_length=16, choices=QueryOutcome)
    code = models.CharField(_("code"), max_length=32, blank=True, default="")
    rows = models.PositiveIntegerField(_("rows"), default=0)
    bytes = models.PositiveBigIntegerField(_("bytes"), default=0)
    duration_ms = models.PositiveIntegerField(_("milliseconds"), default=0)

    class Meta:
        app_label = "memory"
        db_table = "analytics_query_end"
        verbose_name = _("query's end")
        verbose_name_plural = _("queries' ends")

    def __str__(self) -> str:
        return f"{self.query_id} {self.outcome}"


class AnalyticsQueryText(models.Model):
    """The statement as it was sent. Gone when a customer whom it names is erased."""

    query_id = IdField(_("query"), primary_key=True)
    tenant = IdField(_("tenant"))
    text = WholeTextField(_("text"))
    created_at = models.DateTimeField(_("created"), default=now)

    class Meta:
        app_label = "memory"
        db_table = "analytics_query_text"
        verbose_name = _("query's text")
        verbose_name_plural = _("queries' texts")
        indexes = [
            # erasure: a tenant's texts in order
            models.Index(fields=["tenant", "query_id"], name="query_text_tenant"),
        ]

    def __str__(self) -> str:
        return self.query_id


class AnalyticsGrant(models.Model):
    """An analyst may read these personal columns until then. columns: `core_customer.name`, …"""

    tenant = IdField(_("tenant"))
    actor_id = IdField(_("analyst"))
    columns = CanonicalJSONField(_("columns"), default=list)
    reason = models.CharField(_("reason"), max_length=200)
    granted_by = IdField(_("granted by"))
    granted_at = models.DateTimeField(_("granted"), default=now)
    expires_at = models.DateTimeField(_("expires"))
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    revoked_by = IdField(_("revoked by"), blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "analytics_grant"
        verbose_name = _("analyst's grant")
        verbose_name_plural = _("analysts' grants")
        indexes = [
            # each query: what this analyst may read now
            models.Index(fields=["tenant", "actor_id", "expires_at"], name="analytics_grant_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_id} {self.pk}"
