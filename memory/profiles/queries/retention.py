"""How long analysts' queries are kept: texts, which may name a customer, not as long as the log, which names none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import Q, QuerySet

from config.base.retention import NO_LONGER, Person, Retention, Rows, kept, of_customer, register
from memory.erasure.registry import Subject
from memory.profiles.queries.keeping import names_of
from memory.profiles.queries.models import AnalyticsGrant, AnalyticsQueryEnd, AnalyticsQueryLog, AnalyticsQueryText

LOG = "what was asked, by whom, of which tables, without a literal. It takes INSERT only, enforced by triggers"


def texts(before: datetime) -> QuerySet[AnalyticsQueryText]:
    return AnalyticsQueryText.objects.filter(created_at__lt=before)


def naming(pks: Sequence[str], holds: Collection[Person]) -> Collection[str]:
    """Texts that name a held customer, as an erasure would find them. 1 query, and 2 for each hold of the tenants."""
    rows = list(AnalyticsQueryText.objects.filter(pk__in=pks).values_list("pk", "tenant", "text"))
    names = {hold: names_of(Subject(*hold)) for hold in holds}
    return {
        pk
        for pk, tenant, text in rows
        for (of, _customer), called in names.items()
        if of == tenant and any(name in text.casefold() for name in called)
    }


def grants(before: datetime) -> QuerySet[AnalyticsGrant]:
    return AnalyticsGrant.objects.filter(Q(expires_at__lt=before) | Q(revoked_at__lt=before))


register(
    kept(AnalyticsQueryLog, "analysts' queries, normalised", LOG),
    kept(AnalyticsQueryEnd, "how they ended", LOG),
    Retention(
        AnalyticsQueryText._meta.db_table,
        "analysts' queries, as they were sent",
        f"they may name a customer; whoever asks later has the log. {NO_LONGER}",
        days=180,
        since="sent",
        held_back="a legal hold of a customer whom the text names",
        rows=Rows(
            AnalyticsQueryText,
            texts,
            grows_with="created_at",
            people=of_customer(AnalyticsQueryText, ""),
            held=naming,
        ),
    ),
    Retention(
        AnalyticsGrant._meta.db_table,
        "analysts' grants to read personal columns",
        "giving and taking them is in the audit log for good",
        days=400,
        since="expired, or revoked",
        held_back="a grant that is in force",
        rows=Rows(AnalyticsGrant, grants),
    ),
)
