"""Who is or was a customer, and how they are called: for the audit log, which keeps neither in clear."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError

from config.base.errors import DomainError
from memory.core.models import CoreCustomer
from memory.erasure.models import CustomerTombstone
from memory.erasure.tombstones import subjects_of


def known_customers(tenant: str, words: set[str]) -> set[str]:
    """Of these words the ids of customers that the core has, or that were erased. 2 queries.

    The core away: all of them, for any may be one.
    """
    try:
        rows = CoreCustomer.objects.filter(tenant=tenant, customer_id__in=words).order_by()
        found = set(rows.values_list("customer_id", flat=True).distinct())
    except (DomainError, DatabaseError, InterfaceError):
        return words
    whose = {subject: word for word in words - found for subject in subjects_of(tenant, word)}
    stones = CustomerTombstone.objects.filter(subject__in=list(whose), at__isnull=False)
    return found | {whose[subject] for subject in stones.values_list("subject", flat=True)}


def names_of(tenant: str, customer_ids: set[str]) -> set[str]:
    """What the core calls these customers, and has called them. 1 query. The core away: nothing."""
    try:
        rows = CoreCustomer.objects.filter(tenant=tenant, customer_id__in=customer_ids).order_by()
        return set(rows.values_list("name", flat=True).distinct())
    except (DomainError, DatabaseError, InterfaceError):
        return set()
