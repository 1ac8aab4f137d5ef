"""What operators decide about queued entries that could not become messages: try again, or give up."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
from django.db import DataError, IntegrityError, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from guard.access.people import By, admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.sessions.direct import next_numbers
from memory.sessions.entries import Entry, read_entry, stream_ident
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.owners import owner_of_row
from memory.sessions.persist import existing, insert_entries
from memory.sessions.reopen import locked, suspicion

SETTLE = "memory.change_messagedeadletter"
Reason = MessageDeadLetter.Reason
Settled = MessageDeadLetter.Settled


def fields_of(letter: MessageDeadLetter) -> dict[str, str]:
    """The entry as it stood in the stream: k, g, x, m, p. Errors: ValueError, TypeError for what is no object."""
    raw = json.loads(letter.raw)
    if not isinstance(raw, Mapping):
        raise ValueError("not an object")
    if "message" in raw:
        ident = raw.get("ident") or stream_ident(0, letter.tenant, "customer", letter.session_id)
        return {
            "k": str(ident),
            "g": str(raw["digest"]),
            "x": str(raw["trace_id"]),
            "m": str(raw["message"]),
            "p": str(raw.get("parent", "")),
        }
    return {str(name): str(value) for name, value in raw.items()}


def _again(letter: MessageDeadLetter) -> Entry:
    try:
        return read_entry(letter.stream_id, fields_of(letter))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, DomainError) as error:
        raise DomainError("DEAD_LETTER_CONFLICT", f"it still cannot be read: {type(error).__name__}") from None


def _waiting(letter_id: int, tenant: str | None) -> MessageDeadLetter:
    """The letter, locked. Errors: NOT_FOUND, DEAD_LETTER_CONFLICT when somebody has decided already."""
    letters = MessageDeadLetter.objects.select_for_update().filter(pk=letter_id)
    letter = (letters if tenant is None else letters.filter(tenant__in=visible_tenants(tenant))).first()
    if letter is None:
        raise DomainError("NOT_FOUND", "no such dead letter")
    if letter.settled:
        raise DomainError("DEAD_LETTER_CONFLICT", f"{letter.settled_by} has decided already: {letter.settled}")
    return letter


def _admitted(by: By, action: str, letter_id: int) -> str:
    return admit_staff(by, SETTLE, action=action, object_type="message_dead_letter", object_id=str(letter_id))


def visible_tenants(tenant: str) -> tuple[str, ...]:
    """Letters that name no tenant (they cannot be read) belong to those who run the default one."""
    return (tenant, "") if tenant == "default" else (tenant,)


def _settle(letter: MessageDeadLetter, outcome: str, decision: str, by: str, **summary: object) -> None:
    letter.settled, letter.settled_at, letter.settled_by = outcome, now(), by[:150]
    # The text lives on as the message, or is given up; the row says which number it had.
    letter.raw = ""
    letter.save(update_fields=["settled", "settled_at", "settled_by", "raw"])
    record(
        tenant=letter.tenant or "default",
        event_type=EventType.DEAD_LETTER,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by,
        object_type="message",
        object_id=letter.entry_id or letter.stream_id,
        code=letter.reason.upper(),
        input_summary={"session_id": letter.session_id, "letter": letter.pk, **summary},
    )


def retry_letter(*, letter_id: int, by: By, tenant: str | None = None) -> int:
    """Makes the entry a message after all; returns its number.

    Steps, in one transaction: 1. read the entry again; 2. lock its session's row (found by tenant and id: it may have
    been made since); 3. the same message there already: done; 4. else it gets its own number where the database had
    refused it and nobody has that number, and the next one above all leases otherwise: a number out of a range that
    Redis still uses might be given to another; 5. Redis's state of the session is made again before its next use.
    by: who decides, a person with `memory.change_messagedeadletter` or a command's name. tenant: that person's, None
    for all.
    Errors: DEAD_LETTER_CONFLICT (409: decided already, or the reason stands), NOT_FOUND, SESSION_NOT_FOUND,
    SESSION_DELETED (a message never revives one), FORBIDDEN.
    """
    name = _admitted(by, "retry", letter_id)

    def work() -> int:
        with transaction.atomic(durable=True):
            letter = _waiting(letter_id, tenant)
            entry = _again(letter)
            row = AgentSession.objects.filter(tenant=entry.tenant, session_id=entry.session_id).first()
            if row is None:
                raise DomainError("SESSION_NOT_FOUND", f"there is no session {entry.session_id!r}")
            own = row.pk == entry.session_pk
            row = locked(owner_of_row(row))
            there = existing(row.pk, [entry.entry_id]).get(entry.entry_id)
            if there is not None:
                if there.digest != entry.digest:
                    raise DomainError("DEAD_LETTER_CONFLICT", "its entry id has other content in this session")
                number = there.seq
            else:
                number = entry.seq
                # next_numbers also marks the session, so that Redis's state of it is made again.
                free = own and letter.reason == Reason.REFUSED and number <= row.seq_ceiling
                free = free and not AgentMessage.objects.filter(session_row_id=row.pk, seq=number).exists()
                above = next_numbers(row, 0 if free else 1)
                number = number if free else above
                _insert(entry, row, number)
            _settle(letter, Settled.RETRIED, Decision.RETRIED, name, seq=number)
            return number

    # IntegrityError: the drain brought this entry, or this number, at this moment.
    number = retry_conflicts(work, also=(IntegrityError,))
    suspicion.raise_()
    return number


def _insert(entry: Entry, row: AgentSession, number: int) -> None:
    entry = msgspec.structs.replace(entry, session_pk=row.pk, agent=row.agent, seq=number)
    try:
        with transaction.atomic():
            insert_entries([entry])
    except DataError as error:
        raise DomainError("DEAD_LETTER_CONFLICT", f"the database refuses it again: {type(error).__name__}") from None


def drop_letter(*, letter_id: int, by: By, tenant: str | None = None) -> None:
    """Gives the entry up: its text is removed, the row stays and says who decided. One transaction.

    Errors: DEAD_LETTER_CONFLICT (409) when somebody has decided already, NOT_FOUND, FORBIDDEN.
    """
    name = _admitted(by, "drop", letter_id)

    def work() -> None:
        with transaction.atomic(durable=True):
            letter = _waiting(letter_id, tenant)
            _settle(letter, Settled.DROPPED, Decision.DROPPED, name, seq=letter.seq)

    retry_conflicts(work)
