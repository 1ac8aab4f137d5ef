"""What officers add to an alert: files with their notes, questions that they wait on, case files that were handed out.

None of it is evidence that a disposition is judged by: nothing here changes an alert's version or its hash.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import IdField
from config.base.ids import new_id
from risk.alerts.models import AlertAction, RiskAlert


class AlertAttachment(models.Model):
    """A file that belongs to a note. It is written once, with its bytes in `AttachmentChunk`, and never again.

    file_name: as the officer sent it; it may name a customer, so pages show it through `hidden`. sha256: of the bytes,
    in hex. erased_at: the customer's data was erased: the bytes and the name are gone, what they were stays told.
    """

    attachment_id = IdField(primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    alert = models.ForeignKey(RiskAlert, verbose_name=_("alert"), on_delete=models.PROTECT, related_name="attachments")
    action = models.ForeignKey(AlertAction, on_delete=models.PROTECT, related_name="attachments")
    file_name = models.CharField(_("file"), max_length=200)
    media_type = models.CharField(_("type"), max_length=100)
    size = models.PositiveBigIntegerField(_("bytes"))
    sha256 = models.CharField("SHA-256", max_length=64)
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    added_at = models.DateTimeField(_("at"), default=now)
    erased_at = models.DateTimeField(_("erased"), null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "alert_attachment"
        verbose_name = _("attachment")
        verbose_name_plural = _("attachments")
        default_permissions = ()
        ordering = ["added_at", "attachment_id"]

    def __str__(self) -> str:
        return self.attachment_id


class AttachmentChunk(models.Model):
    """A piece of a file (attaching.CHUNK bytes; the last one less), so that no statement and no answer holds all of a
    large one."""

    attachment = models.ForeignKey(AlertAttachment, on_delete=models.PROTECT, related_name="chunks")
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        app_label = "risk"
        db_table = "alert_attachment_chunk"
        default_permissions = ()
        constraints = [
            # also the order in which a file is read
            models.UniqueConstraint(fields=["attachment", "number"], name="alert_chunk_once"),
        ]

    def __str__(self) -> str:
        return f"{self.attachment_id} {self.number}"  # type: ignore[attr-defined]


class RecipientKind(models.TextChoices):
    ADVISOR = "advisor", _("advisor")
    BRANCH = "branch", _("branch")
    COLLEAGUE = "colleague", _("colleague")
    STAFF = "staff", _("person of the console")


class RequestState(models.TextChoices):
    """As stored. One that is open past its due is overdue: that is worked out, never stored."""

    OPEN = "open", _("open")
    ANSWERED = "answered", _("answered")
    WITHDRAWN = "withdrawn", _("withdrawn")


class InformationRequest(models.Model):
    """A question to somebody about an alert, with a due. It leaves `open` once, for good.

    recipient: an advisor's id, a branch, a name; of kind `staff` a user name. closing: the answer as an officer
    recorded it, or why it was withdrawn. overdue_told_at: its being overdue stands in the timeline.
    """

    request_id = IdField(primary_key=True, default=new_id, editable=False)
    tenant = IdField(_("tenant"), default="default")
    alert = models.ForeignKey(RiskAlert, verbose_name=_("alert"), on_delete=models.PROTECT, related_name="requests")
    recipient_kind = models.CharField(_("recipient"), max_length=12, choices=RecipientKind)
    recipient = models.CharField(_("recipient"), max_length=80)
    question = models.TextField(_("question"))
    due_at = models.DateTimeField(_("due"))
    state = models.CharField(_("state"), max_length=12, choices=RequestState, default=RequestState.OPEN)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("asked by"), on_delete=models.PROTECT, related_name="+"
    )
    asked_at = models.DateTimeField(_("asked"), default=now)
    closing = models.TextField(_("answer"), blank=True, default="")
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("by"), null=True, blank=True, on_delete=models.PROTECT,
        related_name="+",
    )  # fmt: skip
    closed_at = models.DateTimeField(_("at"), null=True, blank=True)
    overdue_told_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "risk"
        db_table = "information_request"
        verbose_name = _("request for information")
        verbose_name_plural = _("requests for information")
        default_permissions = ()
        ordering = ["asked_at", "request_id"]
        indexes = [
            # a tenant's open questions by due: the tile of the overview
            models.Index(fields=["tenant", "state", "due_at"], name="information_request_due"),
            # the sweep: what became overdue and is not told yet
            models.Index(fields=["state", "overdue_told_at", "due_at"], name="information_request_late"),
        ]

    def __str__(self) -> str:
        return self.request_id


class CaseFile(models.Model):
    """A case file that was made for somebody: written before its first byte leaves, so that one that is handed in later
    can be told from a changed one. The PDF itself is not kept: it is made of what is kept."""

    tenant = IdField(_("tenant"), default="default")
    sha256 = models.CharField("SHA-256", max_length=64)
    alert = models.ForeignKey(RiskAlert, verbose_name=_("alert"), on_delete=models.PROTECT, related_name="case_files")
    alert_version = models.PositiveIntegerField(_("version"))
    evidence_hash = models.CharField(_("evidence"), max_length=64)
    language = models.CharField(_("language"), max_length=10)
    size = models.PositiveBigIntegerField(_("bytes"))
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    made_at = models.DateTimeField(_("at"), default=now)

    class Meta:
        app_label = "risk"
        db_table = "case_file"
        verbose_name = _("case file")
        verbose_name_plural = _("case files")
        default_permissions = ()
        ordering = ["-made_at", "-id"]
        indexes = [
            # a file that is handed in, by its hash; two made at one instant of one state are the same file
            models.Index(fields=["tenant", "sha256"], name="case_file_hash"),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} {self.sha256[:12]}"  # type: ignore[attr-defined]
