"""The audit log: INSERT only. Triggers refuse UPDATE and DELETE (see triggers.py)."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField, WholeTextField


class ActorType(models.TextChoices):
    CUSTOMER = "customer", _("customer")
    AGENT = "agent", _("advisor")
    STAFF = "staff", _("staff")
    SERVICE = "service", _("service")
    SYSTEM = "system", _("system")


class EventType(models.TextChoices):
    AUTHN = "authn"
    AUTHZ = "authz"
    PRINCIPAL = "principal"
    ROLE = "role"
    ADMISSION = "admission"
    INPUT_GUARD = "input_guard"
    OUTPUT_GUARD = "output_guard"
    ACTOR_BLOCK = "actor_block"
    AGENT_PAUSE = "agent_pause"
    TRADE_REQUEST = "trade_request"
    PROFILE_WRITE = "profile_write"
    UNMASK = "unmask"
    DRAFT_REVIEW = "draft_review"
    ANALYTICS_SQL = "analytics_sql"
    RISK_HIT = "risk_hit"
    AGENT_BEHAVIOR_DETECTED = "agent_behavior_detected"
    DATA_QUALITY = "data_quality"
    ALERT_OPENED = "alert_opened"
    ALERT_MERGED = "alert_merged"
    ALERT_STATUS = "alert_status"
    ALERT_ESCALATED = "alert_escalated"
    ALERT_VIEWED = "alert_viewed"
    EVIDENCE_EXPORTED = "evidence_exported"
    RULE_CHANGE = "rule_change"
    CONFIG_CHANGE = "config_change"
    LIMIT_CHANGE = "limit_change"
    RULE_SCAN = "rule_scan"
    DATA_IMPORT = "data_import"
    BUDGET = "budget"
    FENCE = "fence"
    CARD_ACTION = "card_action"
    DEAD_LETTER = "dead_letter"
    NOTIFICATION = "notification"
    ERASURE = "erasure"
    LEGAL_HOLD = "legal_hold"
    AUDIT_VERIFY = "audit_verify"


class Decision(models.TextChoices):
    SUCCESS = "success"
    FAILURE = "failure"
    LOCKED = "locked"
    FORBIDDEN = "forbidden"
    ISSUED = "issued"
    ROTATED = "rotated"
    GRANTED = "granted"
    REVOKED = "revoked"
    DENIED = "denied"
    THROTTLED = "throttled"
    FLAGGED = "flagged"
    MASKED = "masked"
    BLOCKED = "blocked"
    BANNED = "banned"
    APPLIED = "applied"
    LIFTED = "lifted"
    EXPIRED = "expired"
    REQUESTED = "requested"
    REFUSED = "refused"
    WRITTEN = "written"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    REJECTED = "rejected"
    SENT = "sent"
    ALLOWED = "allowed"
    DETECTED = "detected"
    OPENED = "opened"
    MERGED = "merged"
    AFTER_DISPOSITION = "after_disposition"
    QUIETED = "quieted"
    CLAIMED = "claimed"
    ASSIGNED = "assigned"
    RELEASED = "released"
    PROPOSED = "proposed"
    RETURNED = "returned"
    CONFIRMED = "confirmed"
    FALSE_POSITIVE = "false_positive"
    CLOSED = "closed"
    REOPENED = "reopened"
    SNOOZED = "snoozed"
    WOKEN = "woken"
    LEVEL_1 = "level_1"
    LEVEL_2 = "level_2"
    VIEWED = "viewed"
    EXPORTED = "exported"
    DRAFTED = "drafted"
    SHADOWED = "shadowed"
    ACTIVATED = "activated"
    RETIRED = "retired"
    CHANGED = "changed"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    ADJUSTED = "adjusted"
    STALE_REJECTED = "stale_rejected"
    ACCEPTED = "accepted"
    STALE_DROPPED = "stale_dropped"
    MOVED = "moved"
    RETRIED = "retried"
    DROPPED = "dropped"
    SET = "set"
    PASSED = "passed"


E_, D_ = EventType, Decision
# Which decisions each event may carry; the vocabulary is closed.
VOCABULARY: dict[str, frozenset[str]] = {
    E_.AUTHN: frozenset({D_.SUCCESS, D_.FAILURE, D_.LOCKED}),
    E_.AUTHZ: frozenset({D_.FORBIDDEN}),
    E_.PRINCIPAL: frozenset({D_.ISSUED, D_.ROTATED, D_.GRANTED, D_.REVOKED}),
    E_.ROLE: frozenset({D_.ISSUED, D_.ROTATED, D_.GRANTED, D_.REVOKED}),
    E_.ADMISSION: frozenset({D_.DENIED, D_.THROTTLED}),
    E_.INPUT_GUARD: frozenset({D_.FLAGGED, D_.MASKED, D_.BLOCKED, D_.BANNED}),
    E_.OUTPUT_GUARD: frozenset({D_.FLAGGED, D_.MASKED, D_.BLOCKED, D_.BANNED}),
    E_.ACTOR_BLOCK: frozenset({D_.APPLIED, D_.LIFTED, D_.EXPIRED}),
    E_.AGENT_PAUSE: frozenset({D_.APPLIED, D_.LIFTED, D_.EXPIRED}),
    E_.TRADE_REQUEST: frozenset({D_.REQUESTED, D_.REFUSED}),
    E_.PROFILE_WRITE: frozenset({D_.WRITTEN, D_.REFUSED}),
    E_.UNMASK: frozenset({D_.GRANTED, D_.REFUSED}),
    E_.DRAFT_REVIEW: frozenset({D_.SUBMITTED, D_.APPROVED, D_.REJECTED, D_.SENT, D_.EXPIRED}),
    E_.ANALYTICS_SQL: frozenset({D_.ALLOWED, D_.REFUSED}),
    E_.RISK_HIT: frozenset({D_.DETECTED}),
    E_.AGENT_BEHAVIOR_DETECTED: frozenset({D_.DETECTED}),
    E_.DATA_QUALITY: frozenset({D_.DETECTED}),
    E_.ALERT_OPENED: frozenset({D_.OPENED}),
    E_.ALERT_MERGED: frozenset({D_.MERGED, D_.AFTER_DISPOSITION, D_.QUIETED}),
    E_.ALERT_STATUS: frozenset(
        {
            D_.CLAIMED,
            D_.ASSIGNED,
            D_.RELEASED,
            D_.PROPOSED,
            D_.APPROVED,
            D_.RETURNED,
            D_.CONFIRMED,
            D_.FALSE_POSITIVE,
            D_.CLOSED,
            D_.REOPENED,
            D_.SNOOZED,
            D_.WOKEN,
        }
    ),
    E_.ALERT_ESCALATED: frozenset({D_.LEVEL_1, D_.LEVEL_2}),
    E_.ALERT_VIEWED: frozenset({D_.VIEWED, D_.EXPORTED}),
    E_.EVIDENCE_EXPORTED: frozenset({D_.VIEWED, D_.EXPORTED, D_.REFUSED}),
    E_.RULE_CHANGE: frozenset({D_.DRAFTED, D_.SHADOWED, D_.ACTIVATED, D_.RETIRED, D_.CHANGED, D_.REFUSED}),
    E_.CONFIG_CHANGE: frozenset({D_.DRAFTED, D_.SHADOWED, D_.ACTIVATED, D_.RETIRED, D_.CHANGED, D_.REFUSED}),
    E_.LIMIT_CHANGE: frozenset({D_.DRAFTED, D_.SHADOWED, D_.ACTIVATED, D_.RETIRED, D_.CHANGED, D_.REFUSED}),
    E_.RULE_SCAN: frozenset({D_.COMPLETED, D_.PARTIAL, D_.FAILED}),
    E_.DATA_IMPORT: frozenset({D_.COMPLETED, D_.PARTIAL, D_.FAILED}),
    E_.BUDGET: frozenset({D_.REFUSED, D_.ADJUSTED}),
    E_.FENCE: frozenset({D_.STALE_REJECTED}),
    E_.CARD_ACTION: frozenset({D_.ACCEPTED, D_.STALE_DROPPED}),
    E_.DEAD_LETTER: frozenset({D_.MOVED, D_.RETRIED, D_.DROPPED}),
    E_.NOTIFICATION: frozenset({D_.SENT, D_.FAILED}),
    E_.ERASURE: frozenset({D_.REQUESTED, D_.COMPLETED, D_.REFUSED, D_.SET, D_.LIFTED}),
    E_.LEGAL_HOLD: frozenset({D_.REQUESTED, D_.COMPLETED, D_.REFUSED, D_.SET, D_.LIFTED}),
    E_.AUDIT_VERIFY: frozenset({D_.PASSED, D_.FAILED}),
}


# What was seen, and has happened or not whatever is written of it. Only these may be lost (services.observe): of all
# else the row is part of the decision, and without it there is none.
OBSERVATIONS: dict[str, frozenset[str]] = {
    E_.AUTHN: frozenset({D_.FAILURE}),  # no login came of it
    E_.ADMISSION: VOCABULARY[E_.ADMISSION],  # the caller is turned away all the same
    E_.INPUT_GUARD: frozenset({D_.FLAGGED, D_.MASKED}),
    E_.OUTPUT_GUARD: frozenset({D_.FLAGGED, D_.MASKED}),
    E_.ACTOR_BLOCK: frozenset({D_.EXPIRED}),
    E_.AGENT_PAUSE: frozenset({D_.EXPIRED}),
    E_.AGENT_BEHAVIOR_DETECTED: VOCABULARY[E_.AGENT_BEHAVIOR_DETECTED],
    E_.RULE_SCAN: VOCABULARY[E_.RULE_SCAN],
    E_.DATA_IMPORT: VOCABULARY[E_.DATA_IMPORT],
    E_.CARD_ACTION: frozenset({D_.STALE_DROPPED}),
    E_.NOTIFICATION: VOCABULARY[E_.NOTIFICATION],
    E_.AUDIT_VERIFY: VOCABULARY[E_.AUDIT_VERIFY],
}


class AuditLog(models.Model):
    """One decision or observation. No foreign keys: a row must outlive everything that it speaks of."""

    tenant = IdField(_("tenant"))
    at = models.DateTimeField(_("at"), default=now)
    event_type = models.CharField(_("event"), max_length=32, choices=EventType)
    decision = models.CharField(_("decision"), max_length=24, choices=Decision)
    actor_type = models.CharField(_("actor type"), max_length=16, choices=ActorType)
    actor_id = IdField(_("actor"))
    on_behalf_of = IdField(_("on behalf of"), blank=True, default="")
    agent = models.CharField(_("AI agent"), max_length=16, blank=True, default="")
    object_type = models.CharField(_("object type"), max_length=32, blank=True, default="")
    object_id = IdField(_("object"), blank=True, default="")
    code = models.CharField(_("code"), max_length=32, blank=True, default="")
    risk_score = models.PositiveSmallIntegerField(_("score"), null=True, blank=True)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    input_summary = CanonicalJSONField(_("summary"), default=dict, blank=True)
    # The pseudonym of the customer that the row is about, wherever else in the row it stands.
    customer = IdField(_("customer"), blank=True, default="", db_default="", editable=False)
    # Which process wrote the row, as its which, and which of its rows it had committed before (links.py). Empty in rows
    # that are older than that.
    link = models.CharField(max_length=255, blank=True, default="", db_default="", editable=False)
    # `key id:hex`, keyed over all of the row but its id: whoever changes or adds a row before it is sealed lacks the
    # key. Empty in rows that are older than the seals.
    mac = models.CharField(max_length=96, blank=True, default="", db_default="", editable=False)

    class Meta:
        app_label = "guard"
        db_table = "audit_log"
        verbose_name = _("audit record")
        verbose_name_plural = _("audit log")
        ordering = ["-id"]
        permissions = [("export_auditlog", "Can export the audit log")]
        # Pages of the console are by (at, id); each question of its search walks one of these, and no more of it than a
        # page (selectors.py).
        indexes = [
            # RISK-008: one advisor's refusals and trade requests in a window
            models.Index(fields=["tenant", "actor_id", "event_type", "at"], name="audit_actor_event_at"),
            # console: what somebody did, and what was done for them
            models.Index(fields=["tenant", "actor_id", "at"], name="audit_actor_at"),
            models.Index(fields=["tenant", "on_behalf_of", "at"], name="audit_behalf_at"),
            # console: what happened to one alert, profile or session
            models.Index(fields=["tenant", "object_id", "at"], name="audit_object_id_at"),
            # console and RISK-008: everything about one customer
            models.Index(fields=["tenant", "customer", "at"], name="audit_customer_at"),
            # console: the newest of one kind
            models.Index(fields=["tenant", "event_type", "at"], name="audit_event_at"),
            models.Index(fields=["tenant", "decision", "at"], name="audit_decision_at"),
            models.Index(fields=["tenant", "actor_type", "at"], name="audit_kind_at"),
            models.Index(fields=["tenant", "code", "at"], name="audit_code_at"),
            # support: everything under one trace
            models.Index(fields=["trace_id"], name="audit_trace"),
            # console: everything between two moments
            models.Index(fields=["tenant", "at"], name="audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type}/{self.decision} {self.object_type} {self.object_id}"


class AuditSeal(models.Model):
    """One link of the chain that makes `audit_log` tamper-evident: what it covers, and the mac over all of itself.

    INSERT only, as the log. See sealing.py for how one is made and verifying.py for what each column is good for.
    """

    # 0, 1, 2 …: two sealers cannot make the same. 0 is made by the migration alone (origin.py).
    number = models.BigIntegerField(_("number"), primary_key=True)
    at = models.DateTimeField(_("at"))
    # It speaks of the ids from_id < id <= head_id, and of late rows among the ids that earlier seals found missing.
    from_id = models.BigIntegerField(_("from id"))
    head_id = models.BigIntegerField(_("up to id"))
    members = CanonicalJSONField(_("members"))  # [[first, last], …], ascending
    count = models.PositiveIntegerField(_("rows"))
    total = models.BigIntegerField(_("rows so far"))
    opened = CanonicalJSONField(_("missing ids"))  # ids that were not there, and may yet come
    closed = CanonicalJSONField(_("ids given up"))  # of those: no row may ever come
    oldest_open = models.BigIntegerField()  # the earliest seal with an id that is still open after this one; 0: none
    adopted = models.BigIntegerField(default=0)  # rows of this seal up to this id may lack a mac
    digest = models.CharField(_("digest"), max_length=64)  # SHA-256 over the members' canonical bytes
    leaves = WholeTextField()  # 16 bytes of each member's own SHA-256, base64: they name the row that was changed
    previous_mac = models.CharField(max_length=64, blank=True)
    key_id = models.CharField(_("key"), max_length=24)
    mac = models.CharField(_("mac"), max_length=64)

    class Meta:
        app_label = "guard"
        db_table = "audit_seal"
        verbose_name = _("audit seal")
        verbose_name_plural = _("audit seals")
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"seal {self.number}"


class CustomerPseudonym(models.Model):
    """The key from which a customer's name in the audit log is made. Without it nobody can tell whose rows they are."""

    # A keyed hash of tenant and customer id: the table does not name the customer either.
    lookup = models.CharField(max_length=64, primary_key=True)
    tenant = IdField(_("tenant"))
    key = models.CharField(max_length=64)
    created_at = models.DateTimeField(_("created"), default=now)

    class Meta:
        app_label = "guard"
        db_table = "customer_pseudonym"
        verbose_name = _("customer pseudonym")
        verbose_name_plural = _("customer pseudonyms")
        # erasing a tenant
        indexes = [models.Index(fields=["tenant"], name="pseudonym_tenant")]

    def __str__(self) -> str:
        return self.lookup[:8]
