"""Erases a customer, or all of a tenant, with a receipt."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import DatabaseError, models, transaction

from config.base.clock import now, rfc3339
from config.base.db import is_lock_conflict
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.redis import RedisUnavailable
from guard.access.models import AgentPrincipal
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.erasure import registry
from memory.erasure.models import CustomerTombstone, ErasureReceipt, LegalHold
from memory.erasure.registry import Counts, Subject
from memory.erasure.running import Erasing, gate, in_force, with_gate
from memory.erasure.tombstones import is_pseudonym, pseudonym, subject_of, subjects_of

logger = logging.getLogger(__name__)

Scope, State = ErasureReceipt.Scope, ErasureReceipt.State
FAILED = "failed"
_FINISH_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What an erasure would remove and keep now (a dry run). held: a legal hold is in force."""

    removes: dict[str, Counts]
    keeps: dict[str, dict[str, Any]]
    held: bool


def plan(*, tenant: str = "default", customer_id: str = "") -> Plan:
    """Touches nothing. Without a customer: the tenant. Errors: INVALID_ID."""
    subject = _subject(tenant, customer_id)
    held = in_force(subject)
    return Plan({part.name: part.count(subject) for part in registry.parts()}, _kept(subject), held)


def erase_customer(*, customer_id: str, by: str, tenant: str = "default", reason: str = "") -> ErasureReceipt:
    """Removes a customer's data and refuses whoever writes some from now on. Safe to repeat, and to be killed.

    Steps: 1. under the lock that legal holds take too: no hold in force, the tombstone, the receipt, an audit row, all
    committed before anything is removed; 2. each registered part, in steps that look for a hold again; 3. what is
    kept, and on what ground. Where Redis is away the rest is removed from MySQL, the receipt says what is open, and
    beat (`finish_open`) or the next run finishes it.
    by: who decided. reason: why; both without the customer's name.
    Errors: INVALID_ID (422); LEGAL_HOLD (409, one audit row): nothing more is removed.
    """
    return _erase(_subject(tenant, check_id("customer_id", customer_id)), by, reason)


def erase_tenant(*, tenant: str, by: str, reason: str = "", patience: float | None = None) -> ErasureReceipt:
    """Removes all that a tenant has in memory. Its agent keys are revoked first; while it runs nothing new is made.

    A repeat answers the former receipt, unless something of the tenant has come since.
    patience: seconds until processes that have just used a key know of its revocation (default: what they may take);
    then the parts are removed once more, and the tenant can be used again, with new keys.
    Errors: as `erase_customer`; LEGAL_HOLD where any customer of the tenant is held; NOT_FOUND (404) where nothing is
    known of such a tenant: a slip of the pen must not look like an erasure that was done. Nothing is written then.
    """
    subject = _subject(tenant, "")
    former = ErasureReceipt.objects.filter(subject__in=subjects_of(tenant)).order_by("-pk").first()
    found = plan(tenant=tenant)
    if not found.held and not any(any(counts.values()) for counts in found.removes.values()):
        if former is not None and former.state == State.DONE:
            return former
        if not _known(tenant):
            raise DomainError(
                "NOT_FOUND",
                f"nothing is known of tenant {tenant!r}: no key, session, profile, hold or receipt; nothing was erased "
                "(`manage.py tenants` lists those with data; upper and lower case differ)",
            )
    wait = settings.PRINCIPAL_CACHE_SECONDS if patience is None else patience
    return _erase(subject, by, reason, wait)


def _known(tenant: str) -> bool:
    """Whether anything names a tenant that has nothing to remove. Erased sessions and customers have their receipts."""
    tables: tuple[type[models.Model], ...] = (AgentPrincipal, ErasureReceipt, LegalHold)
    return any(table._default_manager.filter(tenant=tenant).exists() for table in tables)


def _subject(tenant: str, customer_id: str) -> Subject:
    check_id("tenant", tenant)
    if customer_id:
        check_id("customer_id", customer_id)
    return Subject(tenant, customer_id)


def _erase(subject: Subject, by: str, reason: str, wait: float = 0.0) -> ErasureReceipt:
    receipt, before = _begin(subject, by, reason)
    job = Erasing(subject, receipt.pk)
    try:
        failed = _remove(job)
        if wait and _revoked(receipt.pk) > before:
            time.sleep(wait)
            failed |= _remove(job)
    except DomainError as refusal:
        if refusal.code != "LEGAL_HOLD":
            raise
        with transaction.atomic():
            ErasureReceipt.objects.filter(pk=receipt.pk).update(state=State.HELD)
            _record_receipt(receipt, Decision.REFUSED, by, code="LEGAL_HOLD")
        raise
    return _end(job, by, failed)


def _revoked(pk: int) -> int:
    removed = ErasureReceipt.objects.get(pk=pk).removed
    return int(removed.get("guard.access", {}).get("keys_revoked", 0))


def _begin(subject: Subject, by: str, reason: str) -> tuple[ErasureReceipt, int]:
    """The receipt, and how many agent keys earlier runs revoked."""

    scope = Scope.TENANT if subject.whole_tenant else Scope.CUSTOMER

    def work() -> ErasureReceipt | None:
        with transaction.atomic(durable=True):
            row = gate(subject.tenant, subject.customer_id)
            if in_force(subject):
                _record(subject.tenant, scope, row.subject, Decision.REFUSED, by, "LEGAL_HOLD", {})
                return None
            row.at = row.at or now()
            row.save(update_fields=["at"])
            receipt = _latest(subject)
            if receipt is None or (subject.whole_tenant and receipt.state == State.DONE):
                receipt = ErasureReceipt(
                    tenant=subject.tenant,
                    scope=scope,
                    subject=row.subject,
                    by=by[:150],
                    reason=reason[:500],
                )
                receipt.save()
                _record_receipt(receipt, Decision.REQUESTED, by)
            # A finished one stays finished in every word of it, unless something more turns up.
            receipt.state = State.RUNNING
            for left in receipt.remains.values():
                left.pop(FAILED, None)
            receipt.save(update_fields=["state", "remains"])
            return receipt

    receipt = with_gate(work)
    if receipt is None:
        raise DomainError("LEGAL_HOLD")
    return receipt, _revoked(receipt.pk)


def _latest(subject: Subject) -> ErasureReceipt | None:
    names = subjects_of(subject.tenant, subject.customer_id)
    return ErasureReceipt.objects.select_for_update().filter(subject__in=names).order_by("-pk").first()


def _remove(job: Erasing) -> dict[str, str]:
    """Every part; gives back those that failed and why. A part that fails holds up no other."""
    failed: dict[str, str] = {}
    for part in registry.parts():
        job.part = part.name
        try:
            part.erase(job)
        except (DatabaseError, RedisUnavailable) as error:
            if isinstance(error, DatabaseError) and not is_lock_conflict(error):
                raise
            logger.error("erasure: %s is not done: %s", part.name, type(error).__name__)
            failed[part.name] = type(error).__name__
    return failed


def _end(job: Erasing, by: str, failed: Mapping[str, str]) -> ErasureReceipt:
    kept = _kept(job.subject)  # the core may be another server: asked with no lock held

    def work() -> ErasureReceipt:
        with transaction.atomic(durable=True):
            row = gate(job.subject.tenant, job.subject.customer_id)
            receipt = ErasureReceipt.objects.select_for_update().get(pk=job.receipt_pk)
            for name, why in failed.items():
                receipt.remains.setdefault(name, {})[FAILED] = why
            receipt.remains = {name: left for name, left in receipt.remains.items() if left}
            _unname_holds(job.subject)
            if receipt.finished_at is None:
                receipt.kept = kept
            _close(receipt, row, by)
            return receipt

    return with_gate(work)


def _close(receipt: ErasureReceipt, row: CustomerTombstone | None, by: str) -> None:
    """Done where nothing is left. The caller holds the locks."""
    receipt.state = State.OPEN if receipt.remains else State.DONE
    if receipt.state == State.DONE:
        if receipt.finished_at is None:
            receipt.finished_at = now()
            _record_receipt(receipt, Decision.COMPLETED, by)
        if receipt.scope == Scope.TENANT and row is not None:
            row.at = None
            row.save(update_fields=["at"])
    receipt.save()


def _unname_holds(subject: Subject) -> None:
    """Holds that were released stay as a record; whom they were about is said by the receipt's hash alone."""
    rows = LegalHold.objects.filter(tenant=subject.tenant).exclude(released_at=None)
    if not subject.whole_tenant:
        rows = rows.filter(customer_id=subject.customer_id)
    for customer_id in set(rows.values_list("customer_id", flat=True)):
        if not is_pseudonym(customer_id):
            rows.filter(customer_id=customer_id).update(customer_id=pseudonym(subject_of(subject.tenant, customer_id)))


def _kept(subject: Subject) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for one in registry.kept():
        table[one.name] = {"ground": one.ground}
        if one.rows is not None:
            # How many there are is worth a word, but an erasure does not wait for a core system that is away.
            with contextlib.suppress(DatabaseError):
                table[one.name]["rows"] = one.rows(subject)
        if one.only_if_any and table[one.name].get("rows") == 0:
            del table[one.name]
    return table


def _record_receipt(receipt: ErasureReceipt, decision: str, by: str, code: str = "") -> None:
    _record(receipt.tenant, receipt.scope, receipt.subject, decision, by, code, {"receipt": receipt.pk})


def _record(
    tenant: str, scope: str, subject: str, decision: str, by: str, code: str, summary: Mapping[str, Any]
) -> None:
    record(
        tenant=tenant,
        event_type=EventType.ERASURE,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by,
        object_type=scope,
        object_id=subject,
        code=code,
        input_summary=summary,
    )


# --- what was left open -------------------------------------------------------------------------------------------


def finish_open() -> int:
    """Beat: what receipts say is open, and once more what Redis may have forgotten. Returns how many are done with.

    Steps for each: 1. ask the part, outside any transaction; 2. write down what is left, if the receipt still says
    what was read. Receipts that a legal hold stopped are left alone. Redis away: they stay open.
    """
    done = 0
    due = ErasureReceipt.objects.filter(state=State.OPEN) | ErasureReceipt.objects.filter(
        state=State.DONE, again_at__lte=now()
    )
    for receipt in due.order_by("pk")[:_FINISH_AT_ONCE]:
        try:
            done += _finish(receipt)
        except (RedisUnavailable, DatabaseError) as error:
            logger.warning("erasure receipt %s stays open: %s", receipt.pk, type(error).__name__)
    return done


def _finish(receipt: ErasureReceipt) -> bool:
    finishers = {part.name: part.finish for part in registry.parts() if part.finish is not None}
    remains: dict[str, Any] = {}
    for name, left in receipt.remains.items():
        finisher = finishers.get(name)
        after = left if finisher is None or FAILED in left else finisher(left)
        if after:
            remains[name] = after
    for name, left in receipt.again.items():
        if name in finishers:
            finishers[name](left)

    def work() -> bool:
        with transaction.atomic(durable=True):
            rows = CustomerTombstone.objects.select_for_update().filter(subject=receipt.subject)
            row = rows.first()
            fresh = ErasureReceipt.objects.select_for_update().get(pk=receipt.pk)
            if (fresh.state, fresh.remains, fresh.again) != (receipt.state, receipt.remains, receipt.again):
                return False  # somebody else is at it: next time
            fresh.remains, fresh.again, fresh.again_at = remains, {}, None
            _close(fresh, row, "beat")
            return fresh.state == State.DONE

    return with_gate(work)


def as_dict(receipt: ErasureReceipt) -> dict[str, Any]:
    """A receipt as the command prints it."""
    return {
        "receipt": receipt.pk,
        "tenant": receipt.tenant,
        "of": receipt.scope,
        "subject": receipt.subject,
        "state": receipt.state,
        "by": receipt.by,
        "reason": receipt.reason,
        "started_at": rfc3339(receipt.started_at),
        "finished_at": rfc3339(receipt.finished_at) if receipt.finished_at else None,
        "removed": {name: counts for name, counts in receipt.removed.items() if counts},
        "kept": receipt.kept,
        "remains": receipt.remains,
    }
