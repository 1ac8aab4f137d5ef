"""Who may sit at a socket: looked up from the login session, at the start and again with every heartbeat."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.utils.crypto import constant_time_compare

from config.base.fields import canonical_json
from config.base.keys import DEFAULT_TENANT
from config.base.redis import RedisUnavailable, state, translated
from guard.access.roles import tenant_of
from risk.feed.keys import PUB_SIGNED_OUT

logger = logging.getLogger(__name__)

VIEW = "risk.view_riskalert"


@dataclass(frozen=True)
class Watcher:
    """A logged-in person. may_watch: has the permission to see alerts (officers and managers)."""

    user_id: int
    tenant: str
    may_watch: bool


def watcher_of(session_key: str | None) -> Watcher | None:
    """The person behind a login session, read afresh; None when it is gone, expired, of a changed password, or of a
    person who was deactivated. Reads only: it neither renews nor ends the session."""
    if not session_key:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user_id = session.get(SESSION_KEY)
    if user_id is None:
        return None
    user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
    if user is None:
        return None
    stored = session.get(HASH_SESSION_KEY, "")
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    if not any(constant_time_compare(stored, known) for known in hashes):
        return None
    return Watcher(user_id=user.pk, tenant=tenant_of(user), may_watch=user.has_perm(VIEW))


def session_digest(session_key: str) -> str:
    """What names a login session on the wire: the key itself would let its finder in."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def tell_signed_out(sender: Any, request: Any, **_: Any) -> None:
    """On `user_logged_out`: every ASGI process closes the sockets of this login.

    Open when Redis is away: the sockets find out with their next heartbeat.
    """
    session_key = getattr(getattr(request, "session", None), "session_key", None)
    if not session_key:
        return
    try:
        with translated():
            state().publish(PUB_SIGNED_OUT(DEFAULT_TENANT), canonical_json({"session": session_digest(session_key)}))
    except RedisUnavailable as error:
        logger.info("sockets of a log-out close with their next heartbeat: %s", error)
