"""How long profiles and their versions are kept.

As-of reads stay exact for the whole period: of each profile the version that readers were given at its beginning stays
until a newer one has been there for as long, and so do those that it names as what the advisor and the customer were
given then (`shown`, docs/decisions/0023-versions-of-parts.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from config.base.retention import (
    AML,
    SUITABILITY,
    TWENTY_YEARS,
    Retention,
    Rows,
    kept,
    of_customer,
    passing,
    register,
)
from memory.profiles.models import (
    CustomerProfileL1,
    CustomerProfileL2,
    CustomerProfileL3,
    Layer,
    ProfileChange,
    ProfileVersion,
)


def _newer(before: datetime) -> Exists:
    """Whether readers were given a newer version of the same profile already then. By the unique key."""
    same = {name: OuterRef(name) for name in ("tenant", "layer", "customer_id", "advisor_id")}
    return Exists(ProfileVersion.objects.filter(**same, version__gt=OuterRef("version"), visible_at__lt=before))


def due(before: datetime) -> QuerySet[ProfileVersion]:
    rows: QuerySet[ProfileVersion] = ProfileVersion.objects.filter(_newer(before), at__lt=before)
    return rows


def shown(pks: Sequence[int], before: datetime) -> Collection[int]:
    """Versions that the one in force at the cut-off names as its parts'. 1 query, 1 more where there are any of l3."""
    columns = ("pk", "tenant", "customer_id", "version")
    rows = list(ProfileVersion.objects.filter(pk__in=pks, layer=Layer.L3).values_list(*columns))
    if not rows:
        return ()
    customers = {customer for _pk, _tenant, customer, _version in rows}
    tenants = {tenant for _pk, tenant, _customer, _version in rows}
    then = ProfileVersion.objects.filter(layer=Layer.L3, tenant__in=tenants, customer_id__in=customers)
    then = then.filter(visible_at__lt=before).exclude(_newer(before))
    named = {
        (tenant, customer, part.get("row", part.get("version")))
        for tenant, customer, kept_columns in then.values_list("tenant", "customer_id", "columns")
        for part in dict(kept_columns.get("shown") or {}).values()
        if isinstance(part, dict)
    }
    return {pk for pk, tenant, customer, version in rows if (tenant, customer, version) in named}


PROFILE = "what agents know of a customer who is one. PIPL art. 19 and 47"
register(
    *(
        kept(model, f"{what}, as it is now", PROFILE, until="until the customer is erased, or the profile deleted")
        for what, model in (
            ("what a customer told us", CustomerProfileL1),
            ("an advisor's view of a customer, with the snapshot", CustomerProfileL2),
            ("risk's view of a customer", CustomerProfileL3),
        )
    ),
    Retention(
        ProfileVersion._meta.db_table,
        "versions of profiles: what an agent was given when",
        f"what advice rested on. {SUITABILITY}. {AML}",
        days=TWENTY_YEARS,
        floor=TWENTY_YEARS,
        since="a newer version was given to readers",
        held_back="a legal hold of the customer; the version in force at the beginning of the period, and those of its"
        " parts",
        rows=Rows(ProfileVersion, due, grows_with="at", people=of_customer(ProfileVersion), spare=shown),
    ),
    passing(
        ProfileChange, "cached copies that are to be deleted", "the sweeper has deleted it twice, two seconds apart"
    ),
)
