"""Who has been erased, asked by whoever makes something new of a customer.

The rule that lets no late writer through without any lock of its own: **write first, then ask, then commit**. An
erasure commits its tombstone first and removes afterwards by locking reads. A write that was there before that read is
waited for and removed; one that comes after it asks after the tombstone was committed, sees it, and rolls back.
It needs READ COMMITTED, which every connection of ours has: the question must see what others have committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from django.conf import settings
from django.utils.crypto import salted_hmac

from config.base.errors import DomainError
from memory.erasure.models import CustomerTombstone

_SALT = "memory.erasure.subject"
_AT_ONCE = 500


def _hash(secret: str, tenant: str, customer_id: str) -> str:
    # Ids hold no NUL, so the two cannot run over.
    return salted_hmac(_SALT, f"{tenant}\0{customer_id}", secret=secret, algorithm="sha256").hexdigest()


def subject_of(tenant: str, customer_id: str = "") -> str:
    """The keyed hash that stands for a customer (without one: for the tenant), 64 hex digits."""
    return _hash(settings.SECRET_KEY, tenant, customer_id)


def subjects_of(tenant: str, customer_id: str = "") -> list[str]:
    """As `subject_of`, under the present key first and then those before it (SECRET_KEY_FALLBACKS)."""
    return [_hash(secret, tenant, customer_id) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def pseudonym(subject: str) -> str:
    """What stands in an identifier's place in rows that stay."""
    return f"erased-{subject[:40]}"


def is_pseudonym(name: str) -> bool:
    return re.fullmatch("erased-[0-9a-f]{40}", name) is not None


def erased_among(tenant: str, customer_ids: Iterable[str]) -> bool:
    """Whether one of these customers, or the tenant, has been erased. 1 query for each 500."""
    subjects = subjects_of(tenant)
    for customer_id in set(customer_ids):
        subjects += subjects_of(tenant, customer_id)
    stones = CustomerTombstone.objects.filter(at__isnull=False)
    parts: Sequence[list[str]] = [subjects[start : start + _AT_ONCE] for start in range(0, len(subjects), _AT_ONCE)]
    return any(stones.filter(subject__in=part).exists() for part in parts)


def refuse_erased(tenant: str, *customer_ids: str) -> None:
    """In the transaction that has just written something new of these customers. 1 query. Errors: CUSTOMER_ERASED."""
    if erased_among(tenant, customer_ids):
        raise customer_erased()


def customer_erased() -> DomainError:
    return DomainError("CUSTOMER_ERASED")
