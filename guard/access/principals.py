"""Agent keys: issued, rotated, revoked; and this process's memory of them.

On Redis being down: a revocation is told to other processes by Redis, at once; without it they learn of it within
PRINCIPAL_CACHE_SECONDS, when they ask the database again. On the database being down: a key seen in the last 5 s still
authenticates, everything else is refused with 503 (closed).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Q

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access import blacklist
from guard.access.invalidation import tell_forgotten
from guard.access.models import Agent, AgentPrincipal
from guard.access.people import By, admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

logger = logging.getLogger(__name__)

KEY_SCHEME = "xh_"
MAX_LIFETIME = timedelta(days=3660)
MAX_OVERLAP = timedelta(days=30)
MAX_NOTE = 200  # characters, the column's
# How far `last_used_at` may be behind: the database hears of a key that is in use once in so many seconds.
LAST_USED_SECONDS = 300
ISSUE, CHANGE = "guard.add_agentprincipal", "guard.change_agentprincipal"


@dataclass(frozen=True)
class IssuedKey:
    key: str
    principal: AgentPrincipal


@dataclass(frozen=True)
class Principal:
    """A key's row as this process knows it."""

    principal_id: str
    key_digest: str
    tenant: str
    agent: str
    actor_id: str
    expires_at: datetime | None
    revoked_at: datetime | None
    read_at: float  # time.monotonic()

    def check(self, at: datetime) -> None:
        """Errors: KEY_REVOKED, KEY_EXPIRED (401)."""
        if self.revoked_at is not None:
            raise DomainError("KEY_REVOKED")
        if self.expires_at is not None and self.expires_at <= at:
            raise DomainError("KEY_EXPIRED")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _make(
    *, agent: str, tenant: str, actor_id: str, note: str, expires_at: datetime | None, decision: Decision, by: str,
    replaces: str = "",
) -> IssuedKey:  # fmt: skip
    key = KEY_SCHEME + secrets.token_urlsafe(32)
    principal = AgentPrincipal.objects.create(
        tenant=tenant, agent=agent, actor_id=actor_id, note=note, key_digest=digest(key), expires_at=expires_at
    )
    record(
        tenant=tenant,
        event_type=EventType.PRINCIPAL,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by,
        agent=agent,
        object_type="agent_principal",
        object_id=replaces or principal.principal_id,
        on_behalf_of=actor_id,
        input_summary={"replaced_by": principal.principal_id} if replaces else None,
    )
    return IssuedKey(key, principal)


def issue_key(
    *,
    agent: str,
    tenant: str = "default",
    actor_id: str = "",
    expires_in: timedelta | None = None,
    note: str = "",
    issued_by: By = "manage.py",
) -> IssuedKey:
    """Makes a key and its principal. The key is in the answer and nowhere else.

    issued_by: a person, who must hold `guard.add_agentprincipal` and belong to the tenant, or a command's name.
    Errors: INVALID_REQUEST for an unknown agent or a lifetime that is not positive; INVALID_ID; FORBIDDEN.
    """
    by = admit_staff(issued_by, ISSUE, action="issue", object_type="agent_principal", tenant=tenant)
    if agent not in Agent.values:
        raise DomainError("INVALID_REQUEST", f"agent {agent!r} does not exist; use {', '.join(Agent.values)}")
    check_id("tenant", tenant)
    if actor_id:
        check_id("actor", actor_id)
    _check_lifetime(expires_in)
    if len(note) > MAX_NOTE or KEY_SCHEME in note:
        raise DomainError("INVALID_REQUEST", f"the note may have {MAX_NOTE} characters, and no key belongs into it")
    with transaction.atomic():
        return _make(
            agent=agent, tenant=tenant, actor_id=actor_id, note=note,
            expires_at=now() + expires_in if expires_in else None, decision=Decision.ISSUED, by=by,
        )  # fmt: skip


def _check_lifetime(expires_in: timedelta | None) -> None:
    if expires_in is not None and not timedelta(0) < expires_in <= MAX_LIFETIME:
        raise DomainError("INVALID_REQUEST", f"the key's lifetime must be over 0 and at most {MAX_LIFETIME.days} days")


def rotate_key(
    *, principal_id: str, overlap: timedelta, rotated_by: By, expires_in: timedelta | None = None,
    tenant: str | None = None,
) -> IssuedKey:  # fmt: skip
    """Puts a new key in a key's place: same tenant, agent, actor and note. Both are good until the overlap ends.

    overlap: 0 to MAX_OVERLAP; the old key's own end is never moved further away.
    expires_in: the new key's lifetime; by default as long as the old one's was, none where that had none.
    tenant: that person's, None for all.
    One transaction; of two at once, one wins. Tokens of the old key end with it.
    Errors: NOT_FOUND; KEY_REVOKED, KEY_EXPIRED (401) for a key that is over; KEY_ROTATED (409); INVALID_REQUEST for an
    overlap that is none; FORBIDDEN.
    """
    old = _find(principal_id, tenant)
    by = admit_staff(
        rotated_by, CHANGE, action="rotate", object_type="agent_principal", object_id=principal_id, tenant=old.tenant
    )
    if not timedelta(0) <= overlap <= MAX_OVERLAP:
        raise DomainError("INVALID_REQUEST", f"the overlap is 0 to {MAX_OVERLAP.days} days")
    _check_lifetime(expires_in)
    at = now()
    _remembered(old).check(at)
    lifetime = expires_in or (old.expires_at - old.created_at if old.expires_at else None)
    ends = min(at + overlap, old.expires_at) if old.expires_at else at + overlap
    with transaction.atomic():
        issued = _make(
            agent=old.agent, tenant=old.tenant, actor_id=old.actor_id, note=old.note,
            expires_at=at + lifetime if lifetime else None, decision=Decision.ROTATED, by=by, replaces=principal_id,
        )  # fmt: skip
        won = AgentPrincipal.objects.filter(principal_id=principal_id, replaced_by="", revoked_at=None).update(
            replaced_by=issued.principal.principal_id, expires_at=ends
        )
        if not won:
            raise DomainError("KEY_ROTATED")
        _forget_everywhere(old)
    return issued


def revoke_key(*, principal_id: str, revoked_by: By, tenant: str | None = None) -> AgentPrincipal:
    """Ends a key and all tokens that came of it.

    At once here and, told by Redis, in other processes; those that it does not reach learn of it within 5 s.
    tenant: that person's, None for all.
    Errors: NOT_FOUND, FORBIDDEN. Revoking twice is harmless and keeps the first time.
    """
    principal = _find(principal_id, tenant)
    by = admit_staff(
        revoked_by, CHANGE, action="revoke", object_type="agent_principal", object_id=principal_id,
        tenant=principal.tenant,
    )  # fmt: skip
    with transaction.atomic():
        changed = AgentPrincipal.objects.filter(principal_id=principal_id, revoked_at=None).update(revoked_at=now())
        if changed:
            record(
                tenant=principal.tenant,
                event_type=EventType.PRINCIPAL,
                decision=Decision.REVOKED,
                actor_type=ActorType.STAFF,
                actor_id=by,
                agent=principal.agent,
                object_type="agent_principal",
                object_id=principal_id,
            )
            _forget_everywhere(principal)
            seconds = float(settings.ACCESS_TOKEN_SECONDS)
            transaction.on_commit(lambda: blacklist.mark(principal.tenant, [principal_id], seconds))
        principal.refresh_from_db()
    return principal


def _find(principal_id: str, tenant: str | None) -> AgentPrincipal:
    rows = AgentPrincipal.objects.filter(principal_id=principal_id)
    found = (rows if tenant is None else rows.filter(tenant=tenant)).first()
    if found is None:
        raise DomainError("NOT_FOUND", f"no agent key with principal id {principal_id[:64]!r}")
    return found


# --- what this process remembers ----------------------------------------------------------------------------------

_by_digest: dict[str, Principal] = {}
_by_id: dict[str, Principal] = {}
_cache_lock = threading.Lock()
_CACHE_SIZE = 1024
_generation = 0  # raised by every forget: a row read before it is not kept after it


def forget_principals() -> None:
    """Empties this process's key cache."""
    global _generation
    with _cache_lock:
        _generation += 1
        _by_digest.clear()
        _by_id.clear()


def forget_principal(principal_id: str) -> None:
    """Drops one key from this process's cache."""
    global _generation
    with _cache_lock:
        _generation += 1
        found = _by_id.pop(principal_id, None)
        if found is not None:
            _by_digest.pop(found.key_digest, None)


def forget_saved_principal(sender: object, instance: AgentPrincipal, **_: object) -> None:
    """post_save and post_delete of AgentPrincipal: an edit in the console counts at once in its own process."""
    forget_principal(instance.principal_id)
    transaction.on_commit(lambda: forget_principal(instance.principal_id))


def _forget_everywhere(principal: AgentPrincipal) -> None:
    principal_id = principal.principal_id
    forget_principal(principal_id)  # at once for whoever shares this transaction

    def committed() -> None:
        forget_principal(principal_id)
        tell_forgotten(principal_id)

    transaction.on_commit(committed)


def by_key(key: str) -> Principal | None:
    """The principal of a key, or None. No query when the key was read in the last PRINCIPAL_CACHE_SECONDS."""
    if not key.startswith(KEY_SCHEME) or len(key) > 200:
        return None
    key_digest = digest(key)
    return _fresh(_by_digest.get(key_digest)) or _read(key_digest=key_digest)


def by_id(principal_id: str) -> Principal | None:
    """The principal of this id, or None. Costs as `by_key`."""
    return _fresh(_by_id.get(principal_id)) or _read(principal_id=principal_id)


def _fresh(found: Principal | None) -> Principal | None:
    if found is None or time.monotonic() - found.read_at >= settings.PRINCIPAL_CACHE_SECONDS:
        return None
    return found


def _remembered(row: AgentPrincipal, read_at: float = 0.0) -> Principal:
    return Principal(
        row.principal_id, row.key_digest, row.tenant, row.agent, row.actor_id, row.expires_at, row.revoked_at, read_at
    )


def _read(**which: str) -> Principal | None:
    generation = _generation
    read_at = time.monotonic()  # before the query: what it answers may be as old as this
    row = AgentPrincipal.objects.filter(**which).order_by().first()
    if row is None:
        return None
    found = _remembered(row, read_at)
    with _cache_lock:
        if generation == _generation:  # else something was revoked meanwhile: good for this request, not for the next
            if len(_by_id) >= _CACHE_SIZE:
                _by_digest.clear()
                _by_id.clear()
            _by_digest[found.key_digest] = _by_id[found.principal_id] = found
    _note_use(row)
    return found


def _note_use(row: AgentPrincipal) -> None:
    """Keeps `last_used_at`: one UPDATE in LAST_USED_SECONDS a key, whoever comes first. A loss of it does no harm."""
    at = now()
    before = at - timedelta(seconds=LAST_USED_SECONDS)
    if row.revoked_at is not None or (row.last_used_at is not None and row.last_used_at > before):
        return
    if connection.in_atomic_block:
        return  # it would lock the row for as long as somebody else's work takes
    try:
        AgentPrincipal.objects.filter(Q(last_used_at=None) | Q(last_used_at__lte=before), pk=row.pk).update(
            last_used_at=at
        )
    except (DatabaseError, InterfaceError) as error:
        logger.warning("the last use of key %s was not noted: %s", row.principal_id, type(error).__name__)
