"""Revoked tokens stay so whatever becomes of Redis."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings as site
from django.db import OperationalError

from config.base import redis as base_redis
from guard.access import tokens
from guard.access.blacklist import REDIS_PATIENCE
from guard.access.keys import TOKEN
from guard.access.models import RevokedToken
from tests.guard.access.tokens import claims, code_of, elsewhere, made, post, use
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def revoked_elsewhere(pair: tokens.Issued) -> None:
    tokens.revoke_token(caller=use(pair.access_token))
    elsewhere()


def test_the_blacklist_in_redis_ends_with_the_token_it_stops(own_redis_server: RedisServer) -> None:
    _key, pair = made()
    tokens.revoke_token(caller=use(pair.access_token))
    name = TOKEN(jti=claims(pair.access_token)["jti"])
    assert 590 <= own_redis_server.client().ttl(name) <= 601


def test_an_emptied_redis_opens_nothing(own_redis_server: RedisServer) -> None:
    _key, pair = made()
    revoked_elsewhere(pair)
    own_redis_server.empty()
    assert code_of(use, token=pair.access_token) == "TOKEN_REVOKED"


def test_redis_away_opens_nothing_and_closes_nothing(own_redis_server: RedisServer) -> None:
    _key, good = made()
    _key, bad = made()
    own_redis_server.kill()
    tokens.revoke_token(caller=use(bad.access_token))
    elsewhere()
    assert code_of(use, token=bad.access_token) == "TOKEN_REVOKED"
    assert use(good.access_token)
    assert tokens.refresh_tokens(refresh_token=good.refresh_token)
    own_redis_server.start()  # it never heard of the revocation
    base_redis.forget_clients()
    elsewhere()
    assert code_of(use, token=bad.access_token) == "TOKEN_REVOKED"


def test_a_process_that_remembers_a_token_learns_of_a_revocation_within_five_seconds_without_redis(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _key, pair = made()
    use(pair.access_token)
    remembered = dict(tokens._good)
    own_redis_server.kill()
    tokens.revoke_token(caller=use(pair.access_token))
    tokens._good.update(remembered)
    assert use(pair.access_token)  # up to 5 s
    clock = time.monotonic()
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock + site.PRINCIPAL_CACHE_SECONDS)
    assert code_of(use, token=pair.access_token) == "TOKEN_REVOKED"


def test_redis_that_hangs_costs_one_short_wait(own_redis_server: RedisServer) -> None:
    _key, pair = made()
    use(pair.access_token)
    own_redis_server.pause()
    try:
        began = time.monotonic()
        use(pair.access_token)
        first = time.monotonic() - began
        began = time.monotonic()
        for _ in range(20):
            use(pair.access_token)
        others = time.monotonic() - began
    finally:
        own_redis_server.resume()
    assert first < REDIS_PATIENCE + 0.1
    assert others < 0.1


def test_both_away_is_closed(own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _key, known = made()
    _key, unknown = made()
    use(known.access_token)
    remembered = dict(tokens._good)
    tokens.forget_tokens()
    tokens._good.update(remembered)
    own_redis_server.kill()

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError(2006, "MySQL server has gone away")

    monkeypatch.setattr(RevokedToken.objects, "filter", away)
    assert use(known.access_token)  # seen a moment ago
    answer = post("/sessions", unknown.access_token, {})
    assert (answer.status_code, answer.json()["code"]) == (503, "DATABASE_UNAVAILABLE")
