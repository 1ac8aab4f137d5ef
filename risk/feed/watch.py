"""Who may sit at a socket: looked up from the login session, at the start and again every FEED_WATCH_SECONDS, for all
sockets of a process at once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, Permission, User
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.utils.crypto import constant_time_compare

from config.base.clock import now
from config.base.fields import canonical_json
from config.base.keys import DEFAULT_TENANT
from config.base.redis import RedisUnavailable, state, translated
from guard.access.models import StaffMember
from guard.access.roles import RISK_MANAGER, RISK_OFFICER
from risk.feed.keys import PUB_SIGNED_OUT

logger = logging.getLogger(__name__)

VIEW = "risk.view_riskalert"
CALLED = frozenset({RISK_OFFICER, RISK_MANAGER})  # the roles that `notify_role` knows
CHUNK = 1000  # sessions of one query


@dataclass(frozen=True)
class Watcher:
    """A logged-in person. may_watch: has the permission to see alerts. roles: by which an alert calls them
    (`notify_role`); of a superuser, who sees everything, all."""

    user_id: int
    tenant: str
    may_watch: bool
    roles: frozenset[str] = frozenset()


Known = dict[str, tuple[str, str, int]]  # of a session: its data, the password and the person that they fit


def watchers_of(session_keys: Collection[str], known: Known | None = None) -> dict[str, Watcher]:
    """The people behind login sessions, read afresh. Not in it: sessions that are gone, expired, of a changed password,
    or of a person who was deactivated. Reads only: it neither renews nor ends a session.

    known: what earlier calls found, so that the same signature is not checked again; forgets what was not asked for.
    6 queries for 1,000 sessions, however many people.
    """
    known = {} if known is None else known
    for gone in known.keys() - set(session_keys):
        del known[gone]
    found: dict[str, Watcher] = {}
    keys = sorted(session_keys)
    for start in range(0, len(keys), CHUNK):
        people = _people_of(keys[start : start + CHUNK], known)
        watchers = _watchers(set(people.values()))
        found.update({key: watchers[user_id] for key, user_id in people.items()})
    return found


def _people_of(keys: list[str], known: Known) -> dict[str, int]:
    """Who is logged in, by session. 2 queries."""
    stored = _stored(keys)
    read = {key: _claims(data) for key, data in stored.items() if key not in known or known[key][0] != data}
    ids = {user_id for user_id, _ in read.values()} | {known[key][2] for key in stored if key not in read}
    people = User.objects.filter(pk__in=ids - {0}, is_active=True)
    if not read:
        passwords = dict(people.values_list("pk", "password"))
        users: dict[int, User] = {}
    else:
        users = people.in_bulk()
        passwords = {pk: user.password for pk, user in users.items()}
    found: dict[str, int] = {}
    for key, data in stored.items():
        user_id = read[key][0] if key in read else known[key][2]
        password = passwords.get(user_id)
        if password is None:
            continue
        if key in read or known[key][1] != password:
            user = users.get(user_id) or User(pk=user_id, password=password)
            if not _fits(user, read[key][1] if key in read else _claims(data)[1]):
                continue
            known[key] = (data, password, user_id)
        found[key] = user_id
    return found


def _stored(keys: list[str]) -> dict[str, str]:
    """The sessions' data as it is stored, without those that are over."""
    if settings.SESSION_ENGINE == "django.contrib.sessions.backends.db":
        rows = Session.objects.filter(session_key__in=keys, expire_date__gt=now())
        return dict(rows.values_list("session_key", "session_data"))
    store = import_module(settings.SESSION_ENGINE).SessionStore
    loaded = {key: store(key) for key in keys}
    return {key: one.encode(dict(one.items())) for key, one in loaded.items() if SESSION_KEY in one}


def _claims(data: str) -> tuple[int, str]:
    """The person that a session names, 0 for none, and the hash of the password that it was opened with."""
    session = import_module(settings.SESSION_ENGINE).SessionStore().decode(data)
    try:
        return int(session.get(SESSION_KEY) or 0), str(session.get(HASH_SESSION_KEY, ""))
    except ValueError:
        return 0, ""


def _fits(user: User, stored: str) -> bool:
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(stored, one) for one in hashes)


def _watchers(user_ids: set[int]) -> dict[int, Watcher]:
    """What active people may see, as `has_perm` would say, and their roles. 4 queries."""
    label, _, codename = VIEW.partition(".")
    granted = Permission.objects.filter(content_type__app_label=label, codename=codename)
    superusers = set(User.objects.filter(pk__in=user_ids, is_superuser=True).values_list("pk", flat=True))
    by_hand = set(User.objects.filter(pk__in=user_ids, user_permissions__in=granted).values_list("pk", flat=True))
    roles: dict[int, set[str]] = {}
    may: set[int] = superusers | by_hand
    groups = User.groups.through.objects.filter(user_id__in=user_ids)  # type: ignore[attr-defined]
    sees = Exists(Group.permissions.through.objects.filter(group_id=OuterRef("group_id"), permission__in=granted))
    rows = groups.annotate(sees=sees).values_list("user_id", "group__name", "sees")  # type: ignore[misc]
    for user_id, name, seen in rows:
        roles.setdefault(user_id, set()).add(name)
        if seen:
            may.add(user_id)
    tenants = dict(StaffMember.objects.filter(user_id__in=user_ids).values_list("user_id", "tenant"))
    return {
        user_id: Watcher(
            user_id=user_id,
            tenant=tenants.get(user_id, DEFAULT_TENANT),
            may_watch=user_id in may,
            roles=CALLED if user_id in superusers else CALLED.intersection(roles.get(user_id, ())),
        )
        for user_id in user_ids
    }


def session_digest(session_key: str) -> str:
    """What names a login session on the wire: the key itself would let its finder in."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def tell_signed_out(sender: Any, request: Any, **_: Any) -> None:
    """On `user_logged_out`: every ASGI process closes the sockets of this login.

    Open when Redis is away: the sockets find out with the next look at their logins.
    """
    session_key = getattr(getattr(request, "session", None), "session_key", None)
    if not session_key:
        return
    try:
        with translated():
            state().publish(PUB_SIGNED_OUT(DEFAULT_TENANT), canonical_json({"session": session_digest(session_key)}))
    except RedisUnavailable as error:
        logger.info("sockets of a log-out close with the next look at their logins: %s", error)
