"""How long drafts are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db.models import QuerySet

from config.base.removal import delete_by_key
from config.base.retention import NO_LONGER, SUITABILITY, TWENTY_YEARS, Retention, Rows, along, of_customer, register
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision, ReviewStatus

TABLE = AdvisorDraft._meta.db_table


def sent(before: datetime) -> QuerySet[AdvisorDraft]:
    return AdvisorDraft.objects.filter(review_status=ReviewStatus.SENT, sent_at__lt=before)


def expired(before: datetime) -> QuerySet[AdvisorDraft]:
    return AdvisorDraft.objects.filter(review_status=ReviewStatus.EXPIRED, updated_at__lt=before)


def remove(pks: Sequence[str], before: datetime) -> Mapping[str, int]:
    revisions = AdvisorDraftRevision.objects.filter(draft_id__in=pks).delete()[0]
    delete_by_key(AdvisorDraft, pks)
    return {AdvisorDraftRevision._meta.db_table: revisions}


register(
    Retention(
        TABLE,
        "drafts that were sent, with every revision",
        f"advice that was given, and who approved it. {SUITABILITY}",
        days=TWENTY_YEARS,
        floor=TWENTY_YEARS,
        since="sent",
        held_back="a legal hold of the customer",
        rows=Rows(AdvisorDraft, sent, remove=remove, people=of_customer(AdvisorDraft)),
    ),
    Retention(
        TABLE,
        "drafts that expired and were never sent",
        f"what was refused, and why, is asked while memories are fresh; each review is in the audit log. {NO_LONGER}",
        days=1826,
        part="expired",
        since="expired",
        held_back="a legal hold of the customer; a draft whose next step is waited for",
        rows=Rows(AdvisorDraft, expired, remove=remove, people=of_customer(AdvisorDraft)),
    ),
    along(AdvisorDraftRevision, "the words of drafts", TABLE),
)
