"""What stands behind the masks of a draft's page."""

from __future__ import annotations

from django.contrib.auth.models import User

from guard.access.roles import may
from guard.access.unmasking import Clear
from memory.profiles.drafts.models import AdvisorDraft

KIND = "advisor_draft"
VIEW = "memory.view_advisordraft"


def clear_draft(staff: User, tenant: str, object_id: str) -> Clear | None:
    """The customer and the recipient of a draft that this person may see. 3 queries."""
    if not may(staff, VIEW):
        return None
    draft = AdvisorDraft.objects.filter(tenant=tenant, draft_id=object_id).first()
    if draft is None:
        return None
    newest = draft.revisions.get(number=draft.revision)
    return Clear(draft.customer_id, {"customer_id": draft.customer_id, "recipient": newest.recipient})
