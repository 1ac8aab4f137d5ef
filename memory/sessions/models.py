"""Tables of this room: sessions, their messages, and what could not become a message."""

from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField, WholeTextField
from guard.access.models import Agent
from memory.erasure.tombstones import refuse_erased


class AgentSession(models.Model):
    """One conversation of one person with one agent. Who and for whom never change.

    Numbers of messages come from ranges: `seq_ceiling` is the highest number given to anybody so far, and is raised
    before any number up to it is used. `lease_from` to `lease_to` is the range that Redis numbers from (empty while
    lease_to is 0) and `lease_epoch` names the Redis that got it, server process included: another Redis, or the same
    one emptied or restarted, starts above `seq_ceiling`, so that a number which a lost message held is never given
    to another. `detached_at`: MySQL has what Redis has not seen of this session (an append during an outage, a
    deletion): Redis's state of it is to be rebuilt before it is used. `opened_at`: when its state in Redis was last
    made; SESSION_MAX_AGE_SECONDS later there is none, so nothing of it can be queued. `fence_ceiling`: the highest
    fencing number that its lock may have given. `erased_at`: nothing of it is left but this row, which says that its
    id was used and by which agent, and names no person; it refuses late writers for good, and is never used again.
    """

    tenant = IdField(_("tenant"), default="default")
    session_id = IdField(_("session"))
    agent = models.CharField(_("AI agent"), max_length=16, choices=Agent)
    actor_id = IdField(_("actor"))
    customer_id = IdField(_("customer"), blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=now)
    deleted_at = models.DateTimeField(_("deleted"), null=True, blank=True)
    erased_at = models.DateTimeField(_("erased"), null=True, blank=True, editable=False)
    seq_ceiling = models.PositiveBigIntegerField(default=0, editable=False)
    lease_from = models.PositiveBigIntegerField(default=1, editable=False)
    lease_to = models.PositiveBigIntegerField(default=0, editable=False)
    lease_epoch = IdField(blank=True, default="", editable=False)
    detached_at = models.DateTimeField(null=True, blank=True, editable=False)
    opened_at = models.DateTimeField(null=True, blank=True, editable=False)
    fence_ceiling = models.PositiveBigIntegerField(default=0, editable=False)
    lineage = CanonicalJSONField(null=True, blank=True, editable=False)
    forked_from = IdField(_("forked from entry"), blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "agent_session"
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        ordering = ["-id"]
        constraints = [
            # Unique in the tenant, across agents: another agent's use of the id is seen and refused.
            models.UniqueConstraint(fields=["tenant", "session_id"], name="agent_session_id"),
        ]
        indexes = [
            # reconcile --since: sessions that were in use lately
            models.Index(fields=["opened_at"], name="agent_session_opened"),
            # reattach: the few that Redis is behind on
            models.Index(fields=["detached_at"], name="agent_session_detached"),
            # erasure and support: a customer's conversations
            models.Index(fields=["tenant", "customer_id"], name="agent_session_customer"),
            # erasure: conversations that the customer had under the customer agent
            models.Index(fields=["tenant", "actor_id"], name="agent_session_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent}/{self.session_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """As Django's; a new session, however it is made, asks whether its customer was erased (1 query).

        Errors: CUSTOMER_ERASED (410): nothing is saved.
        """
        made = self._state.adding
        if not made:
            return super().save(*args, **kwargs)
        with transaction.atomic(using=kwargs.get("using")):
            super().save(*args, **kwargs)
            refuse_erased(self.tenant, *self.persons)

    @property
    def persons(self) -> list[str]:
        """The customers whose conversation it is: whom it is about, and who had it under the customer agent."""
        return [self.customer_id] * bool(self.customer_id) + [self.actor_id] * (self.agent == Agent.CUSTOMER)


class SessionNumbering(models.Model):
    """Numbers of a session that no message has, and why: what `reconcile` explains gaps with.

    A range that Redis numbered from and was given up (`outage`, `restarted`, `emptied`, `idle`): what of it is above
    `used_to` was, as far as anybody knows, never given to a message. Written when the next range is leased, in the
    same transaction, and by the drain for a repeat: never on the way of an append that Redis takes.
    """

    class Kind(models.TextChoices):
        OUTAGE = "outage", _("messages were committed past Redis")
        RESTARTED = "restarted", _("Redis was restarted")
        EMPTIED = "emptied", _("Redis was emptied while the session was open in it")
        IDLE = "idle", _("Redis was emptied when the session was no longer open in it")
        REPEAT = "repeat", _("the same message came by another way under another number")
        ACCEPTED = "accepted", _("an operator took note of the loss")

    # No constraint in the database, as for messages: it would lock the session's row.
    session_row = models.ForeignKey(
        AgentSession,
        on_delete=models.CASCADE,
        related_name="numbering",
        db_column="session_pk",
        db_constraint=False,
        db_index=False,  # the unique constraint begins with it
    )
    kind = models.CharField(max_length=16, choices=Kind)
    first = models.PositiveBigIntegerField()
    last = models.PositiveBigIntegerField()
    used_to = models.PositiveBigIntegerField(default=0)
    note = models.CharField(max_length=200, blank=True, default="")
    at = models.DateTimeField(default=now)

    class Meta:
        app_label = "memory"
        db_table = "session_numbering"
        constraints = [
            # A drain that died between its commit and the acknowledgement meets the repeat again.
            models.UniqueConstraint(fields=["session_row", "kind", "first"], name="session_numbering_once"),
        ]

    def __str__(self) -> str:
        return f"{self.session_row_id} {self.kind} {self.first}-{self.last}"


class SessionBranch(models.Model):
    """A turn in a conversation's path: its head was moved (`navigate`), or what lay behind was condensed (`compact`).

    Entries above `at_seq` came after it; see `tree.py` for how a path is made of these. navigate: they follow entry
    `target_seq` of the session `target_pk` (this one, or one that it was forked from). compact: `at_seq` is the
    compaction entry, and of what lay behind it only the entries from the target on are still shown.
    `entry_id`: the entry that was written with it (compaction, branch summary), '' where there was none.
    """

    class Kind(models.TextChoices):
        NAVIGATE = "navigate", _("moved to another entry")
        COMPACT = "compact", _("condensed")

    # No constraint in the database, as for messages: it would lock the session's row.
    session_row = models.ForeignKey(
        AgentSession,
        on_delete=models.CASCADE,
        related_name="branches",
        db_column="session_pk",
        db_constraint=False,
    )
    kind = models.CharField(max_length=16, choices=Kind)
    at_seq = models.PositiveBigIntegerField()
    target_pk = models.PositiveBigIntegerField()
    target_seq = models.PositiveBigIntegerField()
    target_entry_id = IdField(blank=True, default="")
    entry_id = IdField(blank=True, default="")
    covered = models.PositiveIntegerField(default=0)
    trace_id = models.CharField(max_length=32, blank=True, default="")
    created_at = models.DateTimeField(default=now)

    class Meta:
        app_label = "memory"
        db_table = "session_branch"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.session_row_id} {self.kind} {self.at_seq}"


class AgentMessage(models.Model):
    """One message, as it was put. Written once, by the drain or by an append that commits."""

    class EntryType(models.TextChoices):
        MESSAGE = "message", _("message")
        COMPACTION = "compaction", _("compaction")
        BRANCH_SUMMARY = "branch_summary", _("branch summary")

    class Role(models.TextChoices):
        USER = "user", _("user")
        ASSISTANT = "assistant", _("assistant")
        SYSTEM = "system", _("system")
        TOOL = "tool", _("tool")

    # No constraint in the database: checking it would lock the session's row for every message, and the drain would
    # wait for (and deadlock with) whoever numbers there. The drain checks that the session exists.
    session_row = models.ForeignKey(
        AgentSession,
        verbose_name=_("session"),
        on_delete=models.PROTECT,
        related_name="messages",
        db_column="session_pk",
        db_constraint=False,
        db_index=False,  # both unique constraints begin with it
    )
    tenant = IdField(_("tenant"), default="default")
    agent = models.CharField(_("AI agent"), max_length=16, choices=Agent)
    session_id = IdField(_("session id"))
    entry_id = IdField(_("entry"))
    parent_entry_id = IdField(_("parent"), blank=True, default="")
    run_id = IdField(_("run"), blank=True, default="")
    seq = models.PositiveBigIntegerField(_("number"))
    entry_type = models.CharField(_("kind"), max_length=16, choices=EntryType, default=EntryType.MESSAGE)
    role = models.CharField(_("role"), max_length=16, choices=Role)
    content = WholeTextField(_("content"))
    payload = CanonicalJSONField(_("payload"), null=True, blank=True)
    size = models.PositiveIntegerField(_("bytes"), help_text=_("Content and payload in UTF-8."))
    digest = models.CharField(max_length=24, editable=False)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    created_at = models.DateTimeField(_("created"))

    class Meta:
        app_label = "memory"
        db_table = "agent_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["session_row_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session_row", "entry_id"], name="agent_message_entry"),
            # also serves every page of a conversation: newest first from a number downward
            models.UniqueConstraint(fields=["session_row", "seq"], name="agent_message_seq"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} {self.seq}"


class MessageDeadLetter(models.Model):
    """A queued entry that cannot become a message: its number is taken by another, its session is unknown, or it
    cannot be read. Nothing is lost: `raw` is the entry as it stood in the stream, until an operator retries it (it
    became a message) or drops it (its text is removed; the row still says which number it had, and who decided)."""

    class Reason(models.TextChoices):
        SEQ_TAKEN = "seq_taken", _("its number belongs to another message")
        ENTRY_TAKEN = "entry_taken", _("its entry id exists with other content")
        NO_SESSION = "no_session", _("its session does not exist")
        UNREADABLE = "unreadable", _("it cannot be read")
        REFUSED = "refused", _("the database refuses it")

    class Settled(models.TextChoices):
        RETRIED = "retried", _("retried")
        DROPPED = "dropped", _("dropped")

    tenant = IdField(_("tenant"), blank=True, default="")
    session_id = IdField(_("session"), blank=True, default="")
    entry_id = IdField(_("entry"), blank=True, default="")
    seq = models.PositiveBigIntegerField(_("number"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=16, choices=Reason)
    detail = models.CharField(_("detail"), max_length=200, blank=True, default="")
    stream_id = IdField(_("place in the stream"))
    raw = WholeTextField(_("entry"))
    created_at = models.DateTimeField(_("moved"), default=now)
    settled = models.CharField(_("outcome"), max_length=16, choices=Settled, blank=True, default="")
    settled_at = models.DateTimeField(_("decided"), null=True, blank=True)
    settled_by = models.CharField(_("decided by"), max_length=150, blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "message_dead_letter"
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        ordering = ["-id"]
        constraints = [
            # A drain that died between its commit and the acknowledgement meets the entry again.
            models.UniqueConstraint(fields=["stream_id", "entry_id"], name="message_dead_letter_once"),
        ]
        indexes = [
            # console: those that wait; reconcile: one session's
            models.Index(fields=["tenant", "settled", "id"], name="message_dead_letter_waiting"),
            models.Index(fields=["tenant", "session_id"], name="message_dead_letter_session"),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.session_id} {self.entry_id}"
