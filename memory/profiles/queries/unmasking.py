"""What stands behind the mask of a query's page: its text, which may name a customer."""

from __future__ import annotations

from django.contrib.auth.models import User

from guard.access.roles import may
from guard.access.unmasking import Clear
from memory.profiles.queries.models import AnalyticsQueryText

KIND = "analytics_query"
VIEW = "memory.view_analyticsquerylog"
# Not guard.unmask_customer: it is for those who speak with customers, and none of them has the log.
TEXTS = "memory.view_analyticsquerytext"


def clear_query(staff: User, tenant: str, object_id: str) -> Clear | None:
    """The text of a statement that this person may see. 2 queries."""
    if not may(staff, VIEW):
        return None
    found = AnalyticsQueryText.objects.filter(tenant=tenant, query_id=object_id).first()
    return Clear("", {"text": found.text}) if found else None
