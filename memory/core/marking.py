"""Whose facts changed: marks for the scanner, and a word to whoever asked to hear of it, in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from django.conf import settings
from django.db.models import F

from memory.core.models import CoreChange, CoreDigest


def mark(*, tenant: str, customer_ids: Iterable[str], priority: int = 0) -> int:
    """Tells the scanner that these customers' facts changed; call it in the transaction of the change.

    With an external core they are due for one more look as well (watch.py): what the scanner reads may be passing.
    """
    ids = sorted(set(customer_ids))
    insert_marks(tenant, ids, priority)
    if settings.CORE_IS_EXTERNAL:
        to_be_looked_at(tenant, ids)
        for start in range(0, len(ids), 500):
            rows = CoreDigest.objects.filter(tenant=tenant, customer_id__in=ids[start : start + 500])
            rows.update(marked=F("marked") + 1)
    return len(ids)


def to_be_looked_at(tenant: str, customer_ids: Iterable[str]) -> None:
    """With an external core: has the rounds look at these customers, also if they are gone before the first.

    Call it before findings of theirs are stored. One query, two and more where somebody is new.
    """
    if not settings.CORE_IS_EXTERNAL:
        return
    ids = sorted(set(customer_ids))
    for start in range(0, len(ids), 500):
        page = ids[start : start + 500]
        known = set(
            CoreDigest.objects.filter(tenant=tenant, customer_id__in=page).values_list("customer_id", flat=True)
        )
        new = [CoreDigest(tenant=tenant, customer_id=name) for name in page if name not in known]
        CoreDigest.objects.bulk_create(new, 500, ignore_conflicts=True)  # a round may find them at this moment


def insert_marks(tenant: str, customer_ids: Iterable[str], priority: int) -> None:
    """The marks alone."""
    marks = [CoreChange(tenant=tenant, customer_id=customer_id, priority=priority) for customer_id in customer_ids]
    CoreChange.objects.bulk_create(marks, 500)


Listener = Callable[[str, set[str]], None]
_customer_listeners: list[Listener] = []
_facts_listeners: list[Listener] = []
_assignment_listeners: list[Listener] = []


def on_customers_changed(listener: Listener) -> None:
    """Call `listener(tenant, customer_ids)` in the transaction that changes their rows or assessments."""
    _customer_listeners.append(listener)


def on_facts_changed(listener: Listener) -> None:
    """Call `listener(tenant, customer_ids)` in the transaction that changes anything that judges these customers:
    their rows, assessments, positions and trades, and products that they hold or traded."""
    _facts_listeners.append(listener)


def on_assignments_changed(listener: Listener) -> None:
    """Call `listener(tenant, customer_ids)` in the transaction that changes who has these customers."""
    _assignment_listeners.append(listener)


def tell(
    tenant: str, *, facts: Collection[str] = (), customers: Collection[str] = (), assignments: Collection[str] = ()
) -> None:
    """In the transaction that saw the change: who asked hears whose facts, own rows, assignments it was."""
    for listeners, ids in (
        (_facts_listeners, facts),
        (_customer_listeners, customers),
        (_assignment_listeners, assignments),
    ):
        if ids:
            for listener in listeners:
                listener(tenant, set(ids))
