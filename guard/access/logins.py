"""Logins to the console: counted by account and by address, and each an audit row.

An attempt is counted before the password is looked at, so that many at once get no more tries than one after the
other; a success takes it back. Redis answers first, so that whoever is locked costs no query and no hash; `login_count`
in MySQL counts too and decides, so a Redis that is away, was emptied or restarted gives nobody a new try. The database
away: nobody logs in (closed).
Unknown accounts are counted, refused and hashed for like known ones. Neither counters nor rows hold what was typed
for an unknown account: people type passwords there.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.utils.translation import ngettext
from redis.exceptions import ResponseError

from config.base.clock import business_date, business_day_bounds, now, to_micros
from config.base.db import retry_conflicts
from config.base.network import client_ip, ip_hex
from config.base.redis import RedisUnavailable, Script
from guard.access.blacklist import quick
from guard.access.keys import LOGIN
from guard.access.models import LoginCount
from guard.access.roles import tenant_of
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import observe, record

logger = logging.getLogger(__name__)

_WHAT = ("account", "address")
UNKNOWN = "unknown"  # stands in rows for an account that does not exist
_attempt = Script.beside(__file__, "attempt")
_credit = Script.beside(__file__, "credit")


class LoginBackend(ModelBackend):
    """Django's own, behind the counters. The console is all that passwords are for: only staff log in."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Errors: PermissionDenied where the account or the address is locked: no other backend is asked, and the form
        says the same as to a wrong password. `request.login_locked_for` tells for how many seconds."""
        if username is None:
            username = kwargs.get(User.USERNAME_FIELD)
        if username is None or password is None:
            return None
        if request is None:
            # A program in process, not a browser: it has no address, and all such are counted as one.
            request = HttpRequest()
        scopes = _scopes(request, username)
        attempt = count_attempt(scopes)
        if attempt.wait:
            request.login_locked_for = attempt.wait  # type: ignore[attr-defined]
            raise PermissionDenied
        user = super().authenticate(request, username=username, password=password)
        if isinstance(user, User):
            give_back(scopes)
            _record(Decision.SUCCESS, scopes, user)
            return user
        _failed(scopes, username, attempt)
        return None

    async def aauthenticate(self, request: Any, username: Any = None, password: Any = None, **kwargs: Any) -> Any:
        return await sync_to_async(self.authenticate)(request, username=username, password=password, **kwargs)

    def user_can_authenticate(self, user: Any) -> bool:
        return bool(super().user_can_authenticate(user) and user.is_staff)


class LoginForm(AdminAuthenticationForm):
    """Says the same to a wrong password and to an account that does not exist; of a lock, how long it lasts."""

    def get_invalid_login_error(self) -> ValidationError:
        wait = getattr(self.request, "login_locked_for", 0)
        if not wait:
            return super().get_invalid_login_error()
        minutes = -(-wait // 60)
        return ValidationError(
            ngettext(
                "Too many failed logins. Try again in %(minutes)d minute.",
                "Too many failed logins. Try again in %(minutes)d minutes.",
                minutes,
            ),
            code="locked",
            params={"minutes": minutes},
        )


# --- whose ----------------------------------------------------------------------------------------------------------


def _scopes(request: HttpRequest, username: str) -> tuple[str, str]:
    """The account's and the address's. One query.

    An account is counted once, however its name is spelled: the database's own comparison (it may ignore case and
    accents) says which it is.
    """
    known = User.objects.filter(username=username).order_by("pk").values_list("pk", flat=True).first()
    folded = unicodedata.normalize("NFKC", username).casefold().strip()[:150]
    name = f"#{known}" if known is not None else folded
    account = salted_hmac("guard.access.login", name, algorithm="sha256").hexdigest()[:32]
    return f"u-{account}", ip_hex(client_ip(request))


# --- the counters ---------------------------------------------------------------------------------------------------


def _limits() -> tuple[int, int]:
    return settings.LOGIN_FAILURES_ACCOUNT, settings.LOGIN_FAILURES_ADDRESS


def _keys(scopes: tuple[str, str]) -> tuple[list[str], datetime, datetime]:
    """Names for the day before, this day and the next, and where this day begins and ends."""
    today = business_date(now())
    begins, ends = business_day_bounds(today)
    days = [today - timedelta(days=1), today, today + timedelta(days=1)]
    return [LOGIN(ip=scope, date=day.isoformat()) for scope in scopes for day in days], begins, ends


class Attempt(NamedTuple):
    """wait: 0, or for how many seconds there will be no attempt. locks: scopes that this one locked, should it fail,
    with the lock's end, by which it is known again."""

    wait: int
    locks: Mapping[str, datetime] = MappingProxyType({})


def count_attempt(scopes: tuple[str, str]) -> Attempt:
    """Counts one attempt, or none while the account or the address is locked.

    Cost: 1 round trip; where Redis does not refuse, a transaction on two rows. Redis away: MySQL alone.
    """
    try:
        keys, begins, ends = _keys(scopes)
        locked, wait_ms = _attempt(
            quick(),
            keys,
            [
                to_micros(begins), to_micros(ends), *_limits(),
                settings.LOGIN_WINDOW_SECONDS * 1000, settings.LOGIN_LOCK_SECONDS * 1000,
            ],
        )  # fmt: skip
        if locked:
            return Attempt(max(1, -(-wait_ms // 1000)))
    except (RedisUnavailable, ResponseError):
        pass  # away, or a counter that somebody has spoilt: MySQL decides
    return retry_conflicts(lambda: _count_in_database(scopes), also=(IntegrityError,))


def _count_in_database(scopes: tuple[str, str]) -> Attempt:
    at = now()
    locks: dict[str, datetime] = {}
    window, lock = timedelta(seconds=settings.LOGIN_WINDOW_SECONDS), timedelta(seconds=settings.LOGIN_LOCK_SECONDS)
    with transaction.atomic():
        rows: Mapping[str, LoginCount] = {
            row.scope: row for row in LoginCount.objects.select_for_update().filter(scope__in=scopes).order_by("scope")
        }
        wait = 0.0
        for scope, limit in zip(scopes, _limits(), strict=True):
            row = rows.get(scope)
            if row is not None and row.ends_at > at and row.failures >= limit:
                wait = max(wait, (row.ends_at - at).total_seconds())
        if wait:
            return Attempt(max(1, round(wait + 0.5)))
        for scope, limit in sorted(zip(scopes, _limits(), strict=True)):
            row = rows.get(scope)
            if row is None:
                row = LoginCount(scope=scope, failures=0, ends_at=at)
            if row.ends_at <= at:
                row.failures, row.ends_at = 0, at + window
            row.failures += 1
            if row.failures >= limit:
                row.ends_at = locks[scope] = at + lock
            row.save(force_insert=scope not in rows)
    return Attempt(0, locks)


def give_back(scopes: tuple[str, str]) -> None:
    """After a success: the account begins anew, the address gets this one attempt back."""
    account, address = scopes
    with transaction.atomic():
        LoginCount.objects.filter(scope=account).delete()
        LoginCount.objects.filter(scope=address, failures__gt=0).update(failures=F("failures") - 1)
    try:
        _credit(quick(), _keys(scopes)[0])
    except (RedisUnavailable, ResponseError):
        logger.warning("a login's attempt stays counted in Redis, which could not be told")


def _standing(locks: Mapping[str, datetime]) -> list[str]:
    """Those of these locks that no success has taken back meanwhile. No query where there are none."""
    if not locks:
        return []
    rows = dict(LoginCount.objects.filter(scope__in=locks).values_list("scope", "ends_at"))
    return [scope for scope, ends_at in locks.items() if rows.get(scope) == ends_at]


# --- rows -----------------------------------------------------------------------------------------------------------


def _failed(scopes: tuple[str, str], username: str, attempt: Attempt) -> None:
    """A row for the failure, and another from the attempt that locked: one a lock, however many came at once. Attempts
    while locked leave none: the log is not to be filled by whoever tries."""
    user = User.objects.filter(username=username).first()
    _record(Decision.FAILURE, scopes, user)
    if standing := _standing(attempt.locks):
        _record(Decision.LOCKED, scopes, user, locked=[_WHAT[scopes.index(scope)] for scope in standing])


def _record(decision: Decision, scopes: tuple[str, str], user: User | None, **more: Any) -> None:
    account, address = scopes
    row: dict[str, Any] = {
        "tenant": tenant_of(user) if user is not None else "default",
        "event_type": EventType.AUTHN,
        "decision": decision,
        "actor_type": ActorType.STAFF,
        "actor_id": user.get_username()[:64] if user is not None else UNKNOWN,
        "object_type": "console",
        "object_id": address,
        "input_summary": {"ip": address, "account": account, **more},
    }
    if decision == Decision.FAILURE:
        observe(**row)
    else:
        record(**row)


def prune_logins(*, limit: int = 1000) -> int:
    """Removes counters whose window and lock are over, at most `limit`."""
    pks = list(LoginCount.objects.filter(ends_at__lt=now() - timedelta(hours=1)).values_list("pk", flat=True)[:limit])
    return LoginCount.objects.filter(pk__in=pks).delete()[0]
