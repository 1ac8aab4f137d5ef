"""What of the query log is protected, erased and kept.

The log is the record of what was asked: INSERT only, kept under any erasure, and without a literal. The texts may name
a customer: those that do are removed with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count

from guard.audit import triggers
from memory.core.models import CoreCustomer
from memory.erasure.keeping import EVIDENCE
from memory.erasure.registry import Counts, Kept, Part, Subject, register_kept
from memory.erasure.running import Erasing, Step
from memory.profiles.models import CustomerProfileL1
from memory.profiles.queries.models import AnalyticsQueryEnd, AnalyticsQueryLog, AnalyticsQueryText

NAME = "memory.queries"
ROWS_A_STEP = 500


def protect() -> None:
    triggers.protect(
        "analytics_query_log",
        key="query_id",
        probe=lambda: AnalyticsQueryLog(query_id="doctor", tenant="default", actor_id="doctor"),
    )
    triggers.protect(
        "analytics_query_end",
        key="query_id",
        probe=lambda: AnalyticsQueryEnd(query_id="doctor", tenant="default", outcome="failed"),
    )


def names_of(subject: Subject) -> list[str]:
    """What a text may call the customer: the id, and each name that the core or l1 knows. Folded: a text is searched
    whatever its case. The core's facts stay, so a repeat finds the same names."""
    names = {subject.customer_id}
    rows = CoreCustomer.objects.filter(tenant=subject.tenant, customer_id=subject.customer_id)
    names.update(rows.values_list("name", flat=True))
    profiles = CustomerProfileL1.objects.filter(tenant=subject.tenant, customer_id=subject.customer_id)
    names.update(str(core.get("name") or "") for core in profiles.values_list("core", flat=True))
    return sorted(name.casefold() for name in names if name)


def _naming(subject: Subject, after: str = "") -> Iterator[tuple[str, bool]]:
    """Of each text after that id: its id, and whether it is the subject's. Looked at here, for databases fold text in
    ways of their own."""
    names = [] if subject.whole_tenant else names_of(subject)
    texts = AnalyticsQueryText.objects.filter(tenant=subject.tenant, query_id__gt=after).order_by("query_id")
    for query_id, text in texts.values_list("query_id", "text").iterator(chunk_size=ROWS_A_STEP):
        folded = text.casefold()
        yield query_id, subject.whole_tenant or any(name in folded for name in names)


def erase(job: Erasing) -> None:
    """Texts that name the customer. Their log rows stay: a statement was asked, by whom, of which tables."""
    found = [query_id for query_id, theirs in _naming(job.subject) if theirs]
    for start in range(0, len(found), ROWS_A_STEP):
        part = found[start : start + ROWS_A_STEP]

        def remove(step: Step, part: list[str] = part) -> None:
            step.count("query_texts", AnalyticsQueryText.objects.filter(query_id__in=part).delete()[0])

        job.step(remove)


def count(subject: Subject) -> Counts:
    return {"query_texts": sum(theirs for _query_id, theirs in _naming(subject))}


def tenants() -> dict[str, Counts]:
    """1 query."""
    rows = AnalyticsQueryText.objects.order_by().values_list("tenant").annotate(Count("pk"))
    return {tenant: {"query_texts": how_many} for tenant, how_many in rows}


PART = Part(NAME, count=count, erase=erase, tenants=tenants)


def register_own() -> None:
    for model in (AnalyticsQueryLog, AnalyticsQueryEnd):
        register_kept(Kept(model._meta.db_table, f"what analysts asked, without literals: {EVIDENCE}"))
