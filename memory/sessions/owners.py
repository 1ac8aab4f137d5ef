"""Whose a session is. It never changes, so it is remembered: the hot path asks no database.

A deletion does not change ownership either; whether a session still lives is asked where its state is (ctx, MySQL).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from config.base.clock import to_micros
from config.base.errors import DomainError
from config.base.ids import check_session_id
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize
from memory.erasure.tombstones import customer_erased
from memory.sessions.entries import stream_ident
from memory.sessions.keys import CTX, IDS, MSGS, PENDING
from memory.sessions.limits import limits
from memory.sessions.models import AgentSession

_REMEMBERED = 10_000
NOT_YOURS = "the session is another actor's or another agent's"


@dataclass(frozen=True, slots=True)
class Owner:
    """A session's fixed facts, and the names of its keys."""

    pk: int
    tenant: str
    agent: str
    session_id: str
    actor_id: str
    customer_id: str
    created_at: datetime
    born_us: int  # the same, in microseconds since 1970
    keys: tuple[str, str, str]  # ctx, msgs, ids
    lineage: tuple[tuple[int, int], ...]  # see AgentSession
    pending: str
    ident: str


_cache: OrderedDict[tuple[str, str, str], Owner] = OrderedDict()
_lock = threading.Lock()


def _owner_of(row: AgentSession) -> Owner:
    names = {"agent": row.agent, "session_id": row.session_id}
    return Owner(
        pk=row.pk,
        tenant=row.tenant,
        agent=row.agent,
        session_id=row.session_id,
        actor_id=row.actor_id,
        customer_id=row.customer_id,
        created_at=row.created_at,
        born_us=to_micros(row.created_at),
        keys=(CTX(row.tenant, **names), MSGS(row.tenant, **names), IDS(row.tenant, **names)),
        lineage=tuple((pk, seq) for pk, seq in row.lineage or ()),
        pending=PENDING(),
        ident=stream_ident(row.pk, row.tenant, row.agent, row.session_id),
    )


def remember(row: AgentSession) -> Owner:
    owner = _owner_of(row)
    # The prefix is part of the key: it stands for the environment that the row belongs to.
    key = (limits.prefix, row.tenant, row.session_id)
    with _lock:
        _cache[key] = owner
        _cache.move_to_end(key)
        while len(_cache) > _REMEMBERED:
            _cache.popitem(last=False)
    return owner


def owner_of_row(row: AgentSession) -> Owner:
    """The facts of a row at hand, without remembering them."""
    return _owner_of(row)


def forget_owners() -> None:
    with _lock:
        _cache.clear()


def find_owner(tenant: str, session_id: str) -> Owner | None:
    """No query when this process has met the session before, else one. Errors: CUSTOMER_ERASED."""
    key = (limits.prefix, tenant, session_id)
    with _lock:
        owner = _cache.get(key)
        if owner is not None:
            _cache.move_to_end(key)
            return owner
    row = AgentSession.objects.filter(tenant=tenant, session_id=session_id).first()
    if row is not None and row.erased_at is not None:
        # Whoever asks: the row does not know any more whose it was.
        raise customer_erased()
    return None if row is None else remember(row)


def check_writable(caller: Caller, session_id: str) -> None:
    """For guard's admission of runs. Errors: those of `admit`."""
    admit(caller, session_id, "write")


def admit(caller: Caller, session_id: str, action: Action) -> Owner:
    """The session, when this caller may do this with it.

    Errors: INVALID_ID (422), SESSION_NOT_FOUND (404), AUTH_403_SCOPE, NOT_OWNER (403, one audit row).
    """
    check_session_id(session_id)
    owner = find_owner(caller.tenant, session_id)
    if owner is None:
        raise DomainError("SESSION_NOT_FOUND", f"no session {session_id!r}; open it with POST /sessions")
    # Another agent's session is somebody else's, even where the actor has the same name there.
    owner_id = owner.actor_id if owner.agent == caller.agent else ""
    authorize(caller, Resource.SESSION, action, object_id=session_id, owner_id=owner_id)
    return owner
