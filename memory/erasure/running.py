"""An erasure under way: the lock that it shares with legal holds, its steps, its receipt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.db import IntegrityError, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from memory.erasure.models import CustomerTombstone, ErasureReceipt, LegalHold
from memory.erasure.registry import Subject
from memory.erasure.tombstones import subjects_of

T = TypeVar("T")

# A Redis with AOF `everysec` may forget up to a second of what it did before a crash.
SETTLE = timedelta(seconds=3)


def gate(tenant: str, customer_id: str = "") -> CustomerTombstone:
    """The row of a customer (or of the tenant), locked until the caller's transaction ends; made where there is none.

    Who needs both locks the tenant's first.
    """
    names = subjects_of(tenant, customer_id)
    rows = CustomerTombstone.objects.select_for_update().filter(subject__in=names)
    # Under an earlier key perhaps: that row is the customer's all the same.
    found = sorted(rows, key=lambda row: names.index(row.subject))
    if found:
        return found[0]
    with transaction.atomic():
        return CustomerTombstone.objects.create(subject=names[0])


def with_gate(work: Callable[[], T]) -> T:
    """`work` opens a transaction and locks a gate. IntegrityError: another made the row at this moment."""
    return retry_conflicts(work, also=(IntegrityError,))


def in_force(subject: Subject) -> bool:
    """Whether a legal hold stands against this. The caller holds the gate."""
    holds = LegalHold.objects.filter(tenant=subject.tenant, released_at=None)
    if not subject.whole_tenant:
        holds = holds.filter(customer_id=subject.customer_id)
    return holds.exists()


@dataclass
class Step:
    """What one step tells the receipt. remains: what is open in this part, from earlier steps too; changed in place."""

    remains: dict[str, Any]
    again: dict[str, Any]
    removed: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, how_many: int) -> None:
        if how_many:
            self.removed[what] = self.removed.get(what, 0) + how_many


@dataclass
class Erasing:
    """subject: whose. receipt_pk: where it is written down. part: the part that is being removed now."""

    subject: Subject
    receipt_pk: int
    part: str = ""

    def step(self, work: Callable[[Step], T]) -> T:
        """One transaction of the removal: lock the gate, look for a legal hold, do `work`, add to the receipt.

        A hold that is being placed waits for the step, and after it nothing more is removed. `work` may run more
        than once (deadlocks are tried again) and may remove from Redis: that is removed again then.
        Errors: LEGAL_HOLD (409); what `work` raises: then nothing of the step is in MySQL.
        """

        def guarded() -> T:
            with transaction.atomic(durable=True):
                gate(self.subject.tenant, self.subject.customer_id)
                if in_force(self.subject):
                    raise DomainError("LEGAL_HOLD")
                receipt = ErasureReceipt.objects.select_for_update().get(pk=self.receipt_pk)
                step = Step(receipt.remains.get(self.part, {}), receipt.again.get(self.part, {}))
                answer = work(step)
                self._write_down(receipt, step)
                return answer

        return with_gate(guarded)

    def _write_down(self, receipt: ErasureReceipt, step: Step) -> None:
        counted = receipt.removed.setdefault(self.part, {})
        for what, how_many in step.removed.items():
            counted[what] = counted.get(what, 0) + how_many
        for column, value in ((receipt.remains, step.remains), (receipt.again, step.again)):
            if value:
                column[self.part] = value
            else:
                column.pop(self.part, None)
        receipt.again_at = now() + SETTLE if receipt.again else None
        receipt.save(update_fields=["removed", "remains", "again", "again_at"])

    @property
    def remains(self) -> dict[str, Any]:
        """What is open in this part, as it is written down now. 1 query."""
        receipt = ErasureReceipt.objects.only("remains").get(pk=self.receipt_pk)
        found: dict[str, Any] = receipt.remains.get(self.part, {})
        return found
