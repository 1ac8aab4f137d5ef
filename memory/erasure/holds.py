"""Legal holds: while one is in force nothing of the customer is erased."""

from __future__ import annotations

from django.db import transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.seen import seen_length
from guard.access.people import By, admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.erasure.models import ErasureReceipt, LegalHold
from memory.erasure.running import gate, with_gate
from memory.erasure.tombstones import customer_erased, subject_of, subjects_of

State = ErasureReceipt.State
MAX_REASON = 500
CHANGE = "memory.change_legalhold"


def place_hold(*, customer_id: str, by: By, reason: str, tenant: str = "default") -> LegalHold:
    """Puts a hold into force. Several may stand against one customer; each is released by itself.

    An erasure that runs at this moment stops: when this returns nothing more is removed, and what is left stays. Who
    comes first is decided by the lock of the customer's row: a step of the erasure that has begun is waited for.
    by: a person with `memory.change_legalhold`, of the tenant, or a command's name.
    Errors: INVALID_ID, INVALID_REQUEST (422); FORBIDDEN; CUSTOMER_ERASED (410, one audit row) when nothing is left to
    hold.
    """
    name = admit_staff(by, CHANGE, action="hold", object_type="legal_hold", tenant=tenant)
    check_id("tenant", tenant)
    check_id("customer_id", customer_id)
    if not seen_length(reason) or len(reason) > MAX_REASON:
        raise DomainError("INVALID_REQUEST", f"a legal hold needs a reason of 1 to {MAX_REASON} characters")

    def work() -> LegalHold | None:
        with transaction.atomic(durable=True):
            gate(tenant)  # a clean-up of the tenant asks for every hold in it
            row = gate(tenant, customer_id)
            names = subjects_of(tenant, customer_id)
            receipt = ErasureReceipt.objects.select_for_update().filter(subject__in=names).order_by("-pk").first()
            if row.at is not None and receipt is not None and receipt.state == State.DONE:
                _record(tenant, customer_id, Decision.REFUSED, name, None, "CUSTOMER_ERASED")
                return None
            hold = LegalHold.objects.create(
                tenant=tenant, customer_id=customer_id, reason=reason.strip(), placed_by=name[:150]
            )
            if row.at is not None and receipt is not None:
                receipt.state = State.HELD
                receipt.save(update_fields=["state"])
            _record(tenant, customer_id, Decision.SET, name, hold)
            return hold

    hold = with_gate(work)
    if hold is None:
        raise customer_erased()
    return hold


def release_hold(*, hold_id: int, by: By, tenant: str | None = None) -> LegalHold:
    """Ends a hold; releasing twice is harmless and keeps the first time. An erasure that it stopped is run again.

    by: as in `place_hold`. tenant: that person's, None for all. Errors: NOT_FOUND, FORBIDDEN.
    """
    name = admit_staff(by, CHANGE, action="release", object_type="legal_hold", object_id=str(hold_id))
    holds = LegalHold.objects.all() if tenant is None else LegalHold.objects.filter(tenant=tenant)

    def work() -> LegalHold:
        with transaction.atomic(durable=True):
            hold = holds.select_for_update().filter(pk=hold_id).first()
            if hold is None:
                raise DomainError("NOT_FOUND", "no such legal hold")
            if hold.released_at is None:
                hold.released_by, hold.released_at = name[:150], now()
                hold.save(update_fields=["released_by", "released_at"])
                _record(hold.tenant, hold.customer_id, Decision.LIFTED, name, hold)
            return hold

    return with_gate(work)


def _record(tenant: str, customer_id: str, decision: str, by: str, hold: LegalHold | None, code: str = "") -> None:
    record(
        tenant=tenant,
        event_type=EventType.LEGAL_HOLD,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by,
        object_type="customer",
        object_id=subject_of(tenant, customer_id),
        code=code,
        input_summary={"hold": hold.pk} if hold is not None else {},
    )
