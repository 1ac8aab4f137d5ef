"""Writes of profiles. Each is one transaction: the row, its version, its `profile_change`, its audit row.

A write replaces the writer's own fields whole: a field that is not sent is gone, a field of another writer stays as
it is and may not be sent. Costs: 5 SQL in the transaction (read with lock, write, version, outbox row, audit row),
after it 1 Redis round trip and 1 SQL (from when readers are given the version); an advisor's assignment is 1 SQL
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from pydantic import ValidationError

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.trace import current_trace_id
from guard.access.services import Caller
from guard.audit.models import Decision, EventType
from guard.audit.services import record
from memory.profiles import policies, restrictions
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Profile
from memory.profiles.recording import authored
from memory.profiles.schemas import (
    L1_CORE_ONLY,
    L1_DERIVED,
    L2_SYSTEM_ONLY,
    L3_INTERNAL,
    MAX_PAYLOAD_BYTES,
    L1Own,
    L2Own,
    L3Own,
    L3Shared,
    Versioned,
)
from memory.profiles.shaping import shaped

# Fields that one refusal names.
MAX_FAULTS = 20

Schema = TypeVar("Schema", bound=Versioned)
Row = TypeVar("Row", bound=Profile)


@dataclass(frozen=True)
class Written:
    """version: of the row as it now stands. created: there was none before."""

    version: int
    updated_at: datetime
    created: bool


def write_l1(*, caller: Caller, customer_id: str, payload: Mapping[str, Any], if_version: int | None = None) -> Written:
    """Replaces the customer agent's fields of l1; the core's stay. A chat never raises a risk level.

    if_version: the version that must be there; 0 means that there must be none; None means whatever is there.
    Errors: INVALID_ID, INVALID_REQUEST that names the field (422); AUTH_403_SCOPE, NOT_OWNER (403);
    VERSION_CONFLICT (409) with `current_version`; BODY_TOO_LARGE (413).
    """
    policies.may_l1(caller, "write", customer_id=customer_id)
    forbidden = {
        **dict.fromkeys(L1_CORE_ONLY, "comes from the core system alone; a chat never changes an assessment"),
        **dict.fromkeys(L1_DERIVED, "is computed from the other fields"),
    }
    fields = _checked(caller, L1Own, payload, forbidden, "profile_l1", customer_id)
    return _write(caller, CustomerProfileL1, {"customer_id": customer_id}, {"payload": fields.stored()}, if_version)


def write_l2(
    *, caller: Caller, customer_id: str, advisor_id: str, payload: Mapping[str, Any], if_version: int | None = None
) -> Written:
    """Replaces the advisor agent's fields of l2; the asset snapshot stays.

    Health and religion are refused in every field, whatever the spelling (422, one audit row without the text).
    Notes and explanations without `at` are given the write's instant, notes also its trace id.
    Errors: as `write_l1`, and NOT_ASSIGNED (403).
    """
    policies.may_l2(caller, "write", customer_id=customer_id, advisor_id=advisor_id)
    forbidden = dict.fromkeys(L2_SYSTEM_ONLY, "comes from the core system alone")
    fields = _checked(caller, L2Own, payload, forbidden, "profile_l2", customer_id).stored()
    written_at = rfc3339(now())
    for note in fields.get("notes", ()):
        note.setdefault("at", written_at)
        note.setdefault("trace_id", current_trace_id())
    for explanation in fields.get("explanations_given", ()):
        explanation.setdefault("at", written_at)
    return _write(
        caller,
        CustomerProfileL2,
        {"customer_id": customer_id, "advisor_id": advisor_id},
        {"payload": fields},
        if_version,
    )


def write_l3(*, caller: Caller, customer_id: str, payload: Mapping[str, Any], if_version: int | None = None) -> Written:
    """Replaces risk's fields of l3. aml_rating, reasons and open_alerts stay in MySQL and with risk.

    Whatever leaves risk and would tip off is refused (422, one audit row without the text).
    A restriction that is added needs a confirmed alert of the customer (1 SQL more), and where others than risk see it
    one that may be told of; one that is there already may be kept, reworded, ended and removed without.
    Errors: as `write_l1`, and NEEDS_CONFIRMED_ALERT (409) with `errors` that name the restrictions.
    """
    policies.may_l3(caller, "write", customer_id=customer_id)
    fields = _checked(caller, L3Own, payload, {}, "profile_l3", customer_id).stored()
    internal = {name: fields.pop(name) for name in L3_INTERNAL if name in fields}

    def allowed(row: CustomerProfileL3) -> None:
        standing = shaped(L3Shared, row.payload).get("restrictions", ())
        wanted = fields.get("restrictions", ())
        places = restrictions.added(standing, wanted, now())
        if not places:
            return
        new = [(place, wanted[place]) for place in places]
        faults = restrictions.unfounded(tenant=caller.tenant, customer_id=customer_id, new=new)
        if faults:
            errors = [{"field": f"restrictions.{place}", "reason": reason} for place, reason in faults.items()]
            first = errors[0]
            raise DomainError("NEEDS_CONFIRMED_ALERT", f"{first['field']}: {first['reason']}", errors=errors)

    try:
        return _write(
            caller,
            CustomerProfileL3,
            {"customer_id": customer_id},
            {"payload": fields, "internal": internal},
            if_version,
            allowed,
        )
    except DomainError as refusal:
        # After the rollback, which would have taken the row along.
        if refusal.code == "NEEDS_CONFIRMED_ALERT":
            names = [error["field"] for error in refusal.extra["errors"]]
            record_write_refusal(caller, "profile_l3", customer_id, names, refusal.code)
        raise


# --- what they share --------------------------------------------------------------------------------------------


def _checked(
    caller: Caller,
    schema: type[Schema],
    payload: Mapping[str, Any],
    forbidden: Mapping[str, str],
    object_type: str,
    customer_id: str,
) -> Schema:
    """The fields as the schema has them.

    Audited are another writer's field, which is an attempt and no slip, and what must not be kept or shown.
    """
    if tried := sorted(set(payload) & set(forbidden)):
        record_write_refusal(caller, object_type, customer_id, tried)
        raise _invalid([(name, forbidden[name]) for name in tried])
    try:
        fields = schema.model_validate(payload)
    except ValidationError as error:
        # Names and reasons only: what was sent is a customer's words.
        faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_input=False)]
        raise _invalid(faults) from None
    try:
        size = len(canonical_json(fields.stored()).encode())
    except UnicodeEncodeError:
        raise _invalid([("", "holds half of a surrogate pair (\\ud800 to \\udfff)")]) from None
    if size > MAX_PAYLOAD_BYTES:
        raise DomainError("BODY_TOO_LARGE", f"the fields are {size} bytes together; the limit is {MAX_PAYLOAD_BYTES}")
    if unfit := list(fields.unfit()):
        record_write_refusal(caller, object_type, customer_id, [path for path, _why in unfit])
        raise _invalid(unfit)
    return fields


def record_write_refusal(
    caller: Caller, object_type: str, customer_id: str, fields: list[str], code: str = "INVALID_REQUEST"
) -> None:
    """One row that names the fields, never what was sent in them."""
    record(
        tenant=caller.tenant,
        event_type=EventType.PROFILE_WRITE,
        decision=Decision.REFUSED,
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        agent=caller.agent,
        object_type=object_type,
        object_id=customer_id,
        code=code,
        input_summary={"code": code, "customer_id": customer_id, "fields": fields[:MAX_FAULTS]},
    )


def _invalid(faults: list[tuple[str, str]]) -> DomainError:
    name, reason = faults[0]
    errors = [{"field": field, "reason": why} for field, why in faults[:MAX_FAULTS]]
    return DomainError("INVALID_REQUEST", f"{name or 'the profile'}: {reason}", errors=errors)


def _write(
    caller: Caller,
    model: type[Row],
    ids: Mapping[str, str],
    columns: Mapping[str, Any],
    if_version: int | None,
    allowed: Callable[[Row], None] | None = None,
) -> Written:
    """allowed: raises where the row as it stands, under its lock, does not let the write happen."""

    def attempt() -> Written:
        with transaction.atomic():
            row, created = locked(model, caller.tenant, ids, if_version)
            if allowed is not None:
                allowed(row)
            for column, value in columns.items():
                setattr(row, column, value)
            save_version(
                row, created, event_by=caller.actor_id, actor_type=caller.actor_type, agent=caller.agent,
                changed=sorted(columns),
            )  # fmt: skip
            return Written(row.version, row.updated_at, created)

    # Two first writers: one inserts, the other meets the unique key and starts over on the row that is now there.
    return retry_conflicts(attempt, also=(IntegrityError,))


def locked(model: type[Row], tenant: str, ids: Mapping[str, str], if_version: int | None = None) -> tuple[Row, bool]:
    """The row under lock, or a new one that is not saved yet. Errors: VERSION_CONFLICT with `current_version`."""
    row: Row | None = model.objects.select_for_update().filter(tenant=tenant, **ids).first()  # type: ignore[attr-defined]
    current = row.version if row else 0
    if if_version is not None and if_version != current:
        there = f"the profile is at version {current}" if current else "there is no profile yet"
        raise DomainError("VERSION_CONFLICT", f"{there}, not at {if_version}", current_version=current)
    if row is None:
        return model(tenant=tenant, **ids), True
    row.hold()
    return row, False


def save_version(
    row: Profile, created: bool, *, event_by: str, actor_type: str, agent: str, changed: list[str]
) -> None:
    """Saves the next version and its audit row. The model adds `profile_version` and `profile_change`.

    row: as `locked` gave it, in this transaction.
    """
    with authored(event_by, agent or event_by):
        row.save(force_insert=created)
    record(
        tenant=row.tenant,
        event_type=EventType.PROFILE_WRITE,
        decision=Decision.WRITTEN,
        actor_type=actor_type,
        actor_id=event_by,
        agent=agent,
        object_type=f"profile_{row.layer.value}",
        object_id=row.customer_id,
        input_summary={"version": row.version, "columns": changed, "customer_id": row.customer_id},
    )
