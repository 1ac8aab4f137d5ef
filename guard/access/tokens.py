"""Short-lived tokens in exchange for a key: issued, refreshed, revoked, checked.

A revocation is in MySQL before it is anywhere else (revoked_token), and then on Redis's blacklist. A request with a
token asks Redis (1 round trip), which knows of a revocation at once, and no more than every 5 s MySQL, which decides.
Redis away, slow or emptied: MySQL alone, so a revocation takes up to 5 s. MySQL away: a token that was checked in the
last 5 s goes on, unless Redis says no; else 503 (closed), and nothing is issued, refreshed or revoked.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import new_id
from guard.access import blacklist, principals
from guard.access.callers import Caller, refuse
from guard.access.models import RevokedToken, TokenFamily
from guard.audit.models import Decision, EventType
from guard.audit.services import record
from guard.tokens import Claims, sign, verify, verify_any


@dataclass(frozen=True)
class Issued:
    """expires_in, refresh_expires_in: seconds."""

    access_token: str
    expires_in: int
    refresh_token: str
    refresh_expires_in: int


def issue_tokens(*, caller: Caller) -> Issued:
    """The first pair of a family, for whom the caller acts. Ends with the caller's key.

    One transaction: the family and an audit row (`principal/granted`). Errors: UNAUTHENTICATED for a caller that came
    with a token: a family would outlive the refresh token that it should end with. KEY_EXPIRED, KEY_REVOKED.
    """
    if caller.token_id or not caller.principal_id:
        raise DomainError("UNAUTHENTICATED", "tokens are given in exchange for the agent key, not for a token")
    principal = _living(caller.principal_id, now())
    family_id = new_id()
    pair, refresh = _pair(principal, caller.actor_id, family_id, 0)
    with transaction.atomic():
        TokenFamily.objects.create(
            family_id=family_id, tenant=caller.tenant, principal_id=caller.principal_id, expires_at=_ends(refresh)
        )
        _record(caller, Decision.GRANTED, family_id)
    return pair


def refresh_tokens(*, refresh_token: str) -> Issued:
    """A new pair for a refresh token, which is over with that.

    Whoever brings one that was used before has it from somebody else, or somebody has it from them: the whole family
    is revoked, with an audit row (`principal/revoked`, TOKEN_REUSED). So of two who bring the same one at once, one
    gets a pair, and the other's coming ends it.
    Errors: UNAUTHENTICATED, TOKEN_EXPIRED, TOKEN_REUSED, TOKEN_REVOKED, KEY_EXPIRED, KEY_REVOKED (401).
    """
    claims = verify(refresh_token, "refresh")
    at = now()
    caller = _caller(claims)
    principal = _living(claims.principal, at)
    pair, refresh = _pair(principal, claims.actor, claims.family, claims.generation + 1)
    with transaction.atomic():
        won = TokenFamily.objects.filter(
            family_id=claims.family, generation=claims.generation, revoked_at=None, principal_id=claims.principal
        ).update(generation=claims.generation + 1, refreshed_at=at, expires_at=_ends(refresh))
        if won:
            return pair
    family = TokenFamily.objects.filter(family_id=claims.family).first()
    if family is None or family.revoked_at is not None:
        raise DomainError("TOKEN_REVOKED")
    _revoke_family(caller, claims, "TOKEN_REUSED")
    raise DomainError("TOKEN_REUSED")


def revoke_token(*, caller: Caller, token: str | None = None) -> None:
    """Ends a token: an access token alone, or with a refresh token all of its family. None: the caller's own.

    Over already, or none of ours: nothing is done and nothing said. One transaction, one audit row.
    Errors: NOT_OWNER (403, audited) for another actor's, agent's or tenant's.
    """
    if token is None:
        if not caller.token_id:
            raise DomainError("INVALID_REQUEST", "name the token to revoke: the request came with a key")
        claims: Claims | None = Claims(
            "access", caller.tenant, caller.agent, caller.actor_id, caller.principal_id, caller.token_family,
            caller.token_id, 0, 0, int(now().timestamp()) + settings.ACCESS_TOKEN_SECONDS,
        )  # fmt: skip
    else:
        claims = verify_any(token)
    if claims is None or claims.seconds_left() <= 0:
        return
    if (claims.tenant, claims.agent, claims.actor) != (caller.tenant, caller.agent, caller.actor_id):
        raise refuse(caller, "NOT_OWNER", "token", claims.jti, "the token is another's", action="revoke")
    if claims.use == "refresh":
        _revoke_family(caller, claims, "REVOKED")
        return
    with transaction.atomic():
        if _put_down(claims.tenant, claims.jti, _ends(claims)):
            _record(caller, Decision.REVOKED, claims.family, "REVOKED", jti=claims.jti)


def _revoke_family(caller: Caller, claims: Claims, code: str) -> None:
    at = now()
    # Access tokens of the family that were given last: the row outlives them all.
    ends = max(_ends(claims), at + timedelta(seconds=settings.ACCESS_TOKEN_SECONDS))
    with transaction.atomic():
        won = TokenFamily.objects.filter(family_id=claims.family, revoked_at=None).update(revoked_at=at)
        if won:
            _put_down(claims.tenant, claims.family, ends)
            _record(caller, Decision.REVOKED, claims.family, code)


def _put_down(tenant: str, one: str, ends: datetime) -> bool:
    """On the blacklist, in MySQL and once that is committed in Redis; whether it was not there yet."""
    _row, new = RevokedToken.objects.get_or_create(jti=one, defaults={"tenant": tenant, "expires_at": ends})
    _forget(one)
    seconds = (ends - now()).total_seconds()

    def committed() -> None:
        _forget(one)
        blacklist.mark(tenant, [one], seconds)

    transaction.on_commit(committed)
    return new


def _living(principal_id: str, at: datetime) -> principals.Principal:
    principal = principals.by_id(principal_id)
    if principal is None:
        raise DomainError("KEY_REVOKED")
    principal.check(at)
    return principal


def _pair(principal: principals.Principal, actor: str, family: str, generation: int) -> tuple[Issued, Claims]:
    whose = {
        "tenant": principal.tenant, "agent": principal.agent, "actor": actor,
        "principal": principal.principal_id, "family": family, "not_after": principal.expires_at,
    }  # fmt: skip
    access, access_claims = sign("access", lifetime=timedelta(seconds=settings.ACCESS_TOKEN_SECONDS), **whose)  # type: ignore[arg-type]
    refresh, refresh_claims = sign(
        "refresh", lifetime=timedelta(seconds=settings.REFRESH_TOKEN_SECONDS), generation=generation, **whose  # type: ignore[arg-type]
    )  # fmt: skip
    return (
        Issued(
            access,
            access_claims.expires_at - access_claims.issued_at,
            refresh,
            refresh_claims.expires_at - refresh_claims.issued_at,
        ),
        refresh_claims,
    )


def _ends(claims: Claims) -> datetime:
    return datetime.fromtimestamp(claims.expires_at, UTC)


def _caller(claims: Claims) -> Caller:
    return Caller(claims.tenant, claims.agent, claims.actor, claims.principal, claims.jti, claims.family)


def _record(caller: Caller, decision: Decision, family_id: str, code: str = "", **summary: str) -> None:
    record(
        tenant=caller.tenant,
        event_type=EventType.PRINCIPAL,
        decision=decision,
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        agent=caller.agent,
        object_type="token_family",
        object_id=family_id,
        code=code,
        input_summary={"principal": caller.principal_id, **summary},
    )


# --- with each request --------------------------------------------------------------------------------------------

_good: dict[str, float] = {}  # jti -> time.monotonic() at which MySQL was asked and had nothing against it
_good_lock = threading.Lock()
_GOOD_SIZE = 8192
_generation = 0


def forget_tokens() -> None:
    """Empties this process's memory of tokens that were found in order."""
    global _generation
    with _good_lock:
        _generation += 1
        _good.clear()


def _forget(one: str) -> None:
    """A token's own id, or a family's: whose tokens these are is not remembered, so all are asked for again."""
    global _generation
    with _good_lock:
        _generation += 1
        if _good.pop(one, None) is None:
            _good.clear()


def check(*, token: str) -> Caller:
    """The caller that an access token makes.

    Cost: 1 round trip to Redis; MySQL at most once in PRINCIPAL_CACHE_SECONDS a token, and once a key.
    Errors: UNAUTHENTICATED, TOKEN_EXPIRED, TOKEN_REVOKED, KEY_EXPIRED, KEY_REVOKED (401).
    """
    claims = verify(token, "access")
    if blacklist.is_marked(claims.tenant, [claims.jti, claims.family, claims.principal]):
        raise DomainError("TOKEN_REVOKED")
    _living(claims.principal, now())
    seen = _good.get(claims.jti)
    if seen is None or time.monotonic() - seen >= settings.PRINCIPAL_CACHE_SECONDS:
        generation, asked = _generation, time.monotonic()
        if RevokedToken.objects.filter(jti__in=(claims.jti, claims.family)).exists():
            raise DomainError("TOKEN_REVOKED")
        with _good_lock:
            if generation == _generation:
                if len(_good) >= _GOOD_SIZE:
                    _good.clear()
                _good[claims.jti] = asked
    return _caller(claims)


def prune_tokens(*, limit: int = 1000) -> int:
    """Removes families and blacklist rows whose last token is over since an hour, at most `limit` of each."""
    before = now() - timedelta(hours=1)
    gone = 0
    for model in (TokenFamily, RevokedToken):
        pks = list(model.objects.filter(expires_at__lt=before).values_list("pk", flat=True)[:limit])
        gone += model.objects.filter(pk__in=pks).delete()[0]
    return gone
