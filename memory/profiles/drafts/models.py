"""A draft, and each revision of its words. The row says where the review stands; the words are in the revisions alone."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField, WholeTextField
from config.base.ids import new_id


class ReviewStatus(models.TextChoices):
    DRAFTED = "drafted", _("drafted")
    SUBMITTED = "submitted", _("submitted")
    APPROVED = "approved", _("approved")
    REJECTED = "rejected", _("rejected")
    SENT = "sent", _("sent")
    EXPIRED = "expired", _("expired")


class DraftKind(models.TextChoices):
    MESSAGE = "message", _("message")
    PROPOSAL = "proposal", _("proposal")
    REPORT = "report", _("report")


class DraftChannel(models.TextChoices):
    APP = "app", _("in the app")
    EMAIL = "email", _("by e-mail")
    SMS = "sms", _("by text message")
    PHONE = "phone", _("by phone")
    LETTER = "letter", _("by letter")


class ReviewerKind(models.TextChoices):
    STAFF = "staff", _("person of the console")
    ADVISOR = "advisor", _("another advisor")


# Whose next step is waited for; the others are the end.
OPEN = (ReviewStatus.DRAFTED, ReviewStatus.SUBMITTED, ReviewStatus.APPROVED, ReviewStatus.REJECTED)


class AdvisorDraft(models.Model):
    """One draft of an advisor for one customer.

    version: one more with each change, the ETag over HTTP. revision: the number of the newest words.
    content_hash: of those (see content.py). approved_hash: of what was approved, '' without an approval in force.
    """

    draft_id = IdField(_("draft"), primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    advisor_id = IdField(_("advisor"))
    customer_id = IdField(_("customer"))
    review_status = models.CharField(
        _("review status"), max_length=16, choices=ReviewStatus, default=ReviewStatus.DRAFTED
    )
    version = models.PositiveIntegerField(_("version"), default=1)
    revision = models.PositiveIntegerField(_("revision"), default=1)
    content_hash = models.CharField(_("hash of the content"), max_length=64)
    approved_hash = models.CharField(_("hash of what was approved"), max_length=64, blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=now)
    updated_at = models.DateTimeField(_("updated"), default=now)
    expires_at = models.DateTimeField(_("expires"))  # unless something happens to it before
    submitted_at = models.DateTimeField(_("submitted"), null=True, blank=True)
    reviewed_at = models.DateTimeField(_("reviewed"), null=True, blank=True)
    reviewed_by = IdField(_("reviewed by"), blank=True, default="")
    reviewer_kind = models.CharField(_("reviewer"), max_length=16, choices=ReviewerKind, blank=True, default="")
    review_reason = models.CharField(_("reason"), max_length=500, blank=True, default="")
    sent_at = models.DateTimeField(_("sent"), null=True, blank=True)
    # hashes of words that were rejected in this draft: they are not submitted again
    rejected_hashes = CanonicalJSONField(_("hashes of what was rejected"), default=list, blank=True)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "advisor_draft"
        verbose_name = _("advisor's draft")
        verbose_name_plural = _("advisors' drafts")
        permissions = [("review_advisordraft", "Can approve and reject advisors' drafts")]
        constraints = [
            models.CheckConstraint(condition=~Q(reviewed_by=F("advisor_id")), name="draft_reviewer_not_author"),
            models.CheckConstraint(
                condition=~Q(review_status__in=["approved", "sent"])
                | (Q(approved_hash=F("content_hash")) & ~Q(reviewed_by="")),
                name="draft_approved_as_it_is",
            ),
        ]
        indexes = [
            # an advisor's own drafts, newest first
            models.Index(fields=["tenant", "advisor_id", "draft_id"], name="draft_advisor"),
            # a customer's drafts: the customer page, what another advisor may review, erasure
            models.Index(fields=["tenant", "customer_id", "draft_id"], name="draft_customer"),
            # the console: what waits for a review, newest first
            models.Index(fields=["tenant", "review_status", "draft_id"], name="draft_status"),
            # what waited too long
            models.Index(fields=["review_status", "expires_at"], name="draft_expires"),
        ]

    def __str__(self) -> str:
        return self.draft_id


class AdvisorDraftRevision(models.Model):
    """The words as they were at one revision; never changed, only erased."""

    draft = models.ForeignKey(AdvisorDraft, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField(_("revision"))
    kind = models.CharField(_("kind"), max_length=16, choices=DraftKind)
    channel = models.CharField(_("channel"), max_length=16, choices=DraftChannel)
    recipient = models.CharField(_("recipient"), max_length=200, blank=True, default="")
    subject = models.CharField(_("subject"), max_length=200, blank=True, default="")
    body = WholeTextField(_("text"))
    content_hash = models.CharField(_("hash of the content"), max_length=64)
    created_at = models.DateTimeField(_("created"), default=now)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "advisor_draft_revision"
        verbose_name = _("draft's revision")
        verbose_name_plural = _("drafts' revisions")
        constraints = [models.UniqueConstraint(fields=["draft", "number"], name="draft_revision_number")]

    def __str__(self) -> str:
        return f"{self.draft_id} r{self.number}"  # type: ignore[attr-defined]
