"""Tokens: got for a key, good for minutes, refreshed once each, revoked for good whatever becomes of Redis."""

from __future__ import annotations

import base64
import json
import logging
import threading
from datetime import timedelta
from typing import Any

import jwt
import pytest
from django.conf import settings as site
from django.db import OperationalError, connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from config.base.errors import DomainError
from config.base.redact import RedactingFormatter, redact
from guard import tokens as signing
from guard.access import tokens
from guard.access.models import RevokedToken, TokenFamily
from guard.access.services import authenticate, issue_key, revoke_key, rotate_key
from guard.audit.models import AuditLog
from tests.guard.access.tokens import claims, code_of, elsewhere, made, post, use
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_a_token_does_what_its_key_did_and_then_a_new_one_does() -> None:
    key = issue_key(agent="customer", tenant="east")
    got = post("/tokens", key.key, **{"X-Actor-Id": "alice"})
    assert (got.status_code, got["Cache-Control"]) == (201, "no-store")
    pair = got.json()
    assert (pair["token_type"], pair["expires_in"], pair["refresh_expires_in"]) == ("Bearer", 600, 86_400)
    opened = post("/sessions", pair["access_token"], {})
    assert (opened.status_code, opened.json()["actor_id"]) == (201, "alice")
    inside = claims(pair["access_token"])
    assert {name: inside[name] for name in ("tenant", "agent", "actor", "principal", "iss")} == {
        "tenant": "east", "agent": "customer", "actor": "alice", "principal": key.principal.principal_id,
        "iss": "xinghuo",
    }  # fmt: skip
    assert inside["exp"] - inside["iat"] == 600
    again = post("/tokens/refresh", body={"refresh_token": pair["refresh_token"]})
    assert again.status_code == 200
    assert post("/sessions", again.json()["access_token"], {}).status_code == 201
    assert post("/tokens/revoke", again.json()["access_token"], {}).status_code == 204
    refused = post("/sessions", again.json()["access_token"], {})
    assert (refused.status_code, refused.json()["code"]) == (401, "TOKEN_REVOKED")
    assert refused["WWW-Authenticate"] == "Bearer"
    assert post("/sessions", pair["access_token"], {}).status_code == 201  # the other one of the family


def test_the_header_must_name_the_tokens_actor_or_nobody() -> None:
    _key, pair = made()
    assert use(pair.access_token).actor_id == use(pair.access_token, "alice").actor_id == "alice"
    before = AuditLog.objects.filter(event_type="authz").count()
    assert code_of(use, token=pair.access_token, actor_id="bob") == "NOT_OWNER"
    assert AuditLog.objects.filter(event_type="authz", code="NOT_OWNER").count() == before + 1
    assert code_of(use, token=pair.access_token, actor_id="a:b") == "INVALID_ID"


def test_a_token_gets_no_tokens() -> None:
    _key, pair = made()
    answer = post("/tokens", pair.access_token)
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert TokenFamily.objects.count() == 1


@pytest.mark.parametrize("body", [{}, {"refresh_token": ""}, {"refresh_token": "x" * 5000}, {"refresh_token": 1}, []])
def test_a_body_that_is_none(body: Any) -> None:
    assert post("/tokens/refresh", body=body).status_code == 422


# --- forgeries --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_only_what_we_signed_with_this_purpose_counts() -> None:
    _key, pair = made()
    good = pair.access_token
    head, content, mac = good.split(".")
    inside = claims(good)
    kid = jwt.get_unverified_header(good)["kid"]
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": kid}).encode()).rstrip(b"=").decode()
    other = {**inside, "actor": "bob"}
    forged = [
        f"{none}.{content}.",
        f"{none}.{content}.{mac}",
        f"{head}.{content}.",
        f"{head}.{content}.{mac[:-2]}AA",
        f"{head}.{base64.urlsafe_b64encode(json.dumps(other).encode()).rstrip(b'=').decode()}.{mac}",
        jwt.encode(inside, site.SECRET_KEY, algorithm="HS256", headers={"kid": kid}),  # not the derived key
        jwt.encode(inside, "x" * 32, algorithm="HS256", headers={"kid": "other"}),
        jwt.encode(inside, next(iter(signing._keys().values())), algorithm="HS512", headers={"kid": kid}),
        jwt.encode({**inside, "iss": "xing"}, next(iter(signing._keys().values())), headers={"kid": kid}),
        jwt.encode({**inside, "use": "any"}, next(iter(signing._keys().values())), headers={"kid": kid}),
        jwt.encode({**inside, "tenant": "a:b"}, next(iter(signing._keys().values())), headers={"kid": kid}),
        jwt.encode({**inside, "exp": True}, next(iter(signing._keys().values())), headers={"kid": kid}),
        jwt.encode(
            {name: value for name, value in inside.items() if name != "exp"},
            next(iter(signing._keys().values())), headers={"kid": kid},
        ),
        pair.refresh_token,  # of another use
        "eyJ.e.x", "eyJ..", "eyJ" + "a" * 10_000 + ".b.c", "eyJé.b.c",
    ]  # fmt: skip
    for token in forged:
        assert code_of(use, token=token) == "UNAUTHENTICATED", token[:60]
        assert code_of(tokens.refresh_tokens, refresh_token=good) == "UNAUTHENTICATED"
    assert use(good)


def test_a_new_secret_key_ends_no_token_and_a_forgotten_one_ends_all(settings: Any) -> None:
    _key, pair = made()
    old = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "a new one", [old]
    assert use(pair.access_token)
    assert (
        jwt.get_unverified_header(made()[1].access_token)["kid"] != jwt.get_unverified_header(pair.access_token)["kid"]
    )
    settings.SECRET_KEY_FALLBACKS = []
    assert code_of(use, token=pair.access_token) == "UNAUTHENTICATED"


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_token_ends_in_time_and_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    _key, pair = made()
    _short, brief = made(expires_in=timedelta(seconds=100))
    assert brief.expires_in == 100
    assert brief.refresh_expires_in == 100
    later = now() + timedelta(seconds=601)
    monkeypatch.setattr(signing, "now", lambda: later)
    assert code_of(use, token=pair.access_token) == "TOKEN_EXPIRED"
    much_later = now() + timedelta(days=1, seconds=1)
    monkeypatch.setattr(signing, "now", lambda: much_later)
    assert code_of(tokens.refresh_tokens, refresh_token=pair.refresh_token) == "TOKEN_EXPIRED"


def test_a_revoked_key_takes_its_tokens_with_it_at_once_everywhere() -> None:
    key, pair = made()
    other_key, other = made()
    use(pair.access_token)
    remembered = dict(tokens._good)
    revoke_key(principal_id=key.principal.principal_id, revoked_by="ops")
    # A process that remembers key and token from a moment ago: Redis tells it.
    tokens._good.update(remembered)
    assert code_of(use, token=pair.access_token) == "TOKEN_REVOKED"
    assert code_of(tokens.refresh_tokens, refresh_token=pair.refresh_token) == "KEY_REVOKED"
    assert use(other.access_token).principal_id == other_key.principal.principal_id


def test_a_rotated_keys_tokens_end_with_its_overlap() -> None:
    key, pair = made()
    rotate_key(principal_id=key.principal.principal_id, overlap=timedelta(hours=1), rotated_by="ops")
    assert use(pair.access_token)
    next_pair = tokens.refresh_tokens(refresh_token=pair.refresh_token)
    assert next_pair.refresh_expires_in <= 3600
    key, pair = made()
    rotate_key(principal_id=key.principal.principal_id, overlap=timedelta(0), rotated_by="ops")
    assert code_of(use, token=pair.access_token) == "KEY_EXPIRED"


# --- refreshing -------------------------------------------------------------------------------------------------------


def test_an_old_refresh_token_that_comes_again_ends_the_whole_family() -> None:
    _key, first = made()
    second = tokens.refresh_tokens(refresh_token=first.refresh_token)
    third = tokens.refresh_tokens(refresh_token=second.refresh_token)
    assert use(third.access_token)
    assert code_of(tokens.refresh_tokens, refresh_token=first.refresh_token) == "TOKEN_REUSED"
    for pair in (first, second, third):
        assert code_of(use, token=pair.access_token) == "TOKEN_REVOKED"
        assert code_of(tokens.refresh_tokens, refresh_token=pair.refresh_token) == "TOKEN_REVOKED"
    [row] = AuditLog.objects.filter(event_type="principal", decision="revoked")
    assert (row.code, row.object_type, row.object_id) == (
        "TOKEN_REUSED",
        "token_family",
        claims(first.access_token)["fam"],
    )


def test_of_many_who_refresh_at_once_one_at_most_has_a_pair_and_the_family_is_over() -> None:
    _key, pair = made()
    start, done = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        try:
            done.append(tokens.refresh_tokens(refresh_token=pair.refresh_token))
        except (DomainError, OperationalError) as error:
            done.append(getattr(error, "code", "busy"))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [one for one in done if isinstance(one, tokens.Issued)]
    assert len(got) == 1
    assert "TOKEN_REUSED" in done
    assert code_of(tokens.refresh_tokens, refresh_token=got[0].refresh_token) == "TOKEN_REVOKED"
    assert code_of(use, token=got[0].access_token) == "TOKEN_REVOKED"
    assert AuditLog.objects.filter(event_type="principal", decision="revoked").count() == 1


# --- revoking ---------------------------------------------------------------------------------------------------------


def test_nobody_revokes_anothers_token() -> None:
    key, pair = made()
    bob = authenticate(key=key.key, actor_id="bob")
    assert code_of(tokens.revoke_token, caller=bob, token=pair.access_token) == "NOT_OWNER"
    _other, stranger = made(tenant="east")
    assert code_of(tokens.revoke_token, caller=use(stranger.access_token), token=pair.refresh_token) == "NOT_OWNER"
    assert use(pair.access_token)
    assert AuditLog.objects.filter(event_type="authz", code="NOT_OWNER").count() == 2


def test_what_is_over_or_none_of_ours_is_revoked_in_silence() -> None:
    key, pair = made()
    alice = authenticate(key=key.key, actor_id="alice")
    for token in ("nonsense", pair.access_token, pair.access_token):
        tokens.revoke_token(caller=alice, token=token)
    assert RevokedToken.objects.count() == 1
    assert AuditLog.objects.filter(event_type="principal", decision="revoked").count() == 1
    assert code_of(tokens.revoke_token, caller=alice) == "INVALID_REQUEST"


def test_revoking_a_refresh_token_ends_its_family() -> None:
    key, first = made()
    second = tokens.refresh_tokens(refresh_token=first.refresh_token)
    tokens.revoke_token(caller=authenticate(key=key.key, actor_id="alice"), token=second.refresh_token)
    for pair in (first, second):
        assert code_of(use, token=pair.access_token) == "TOKEN_REVOKED"
    assert code_of(tokens.refresh_tokens, refresh_token=second.refresh_token) == "TOKEN_REVOKED"


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_warm_token_costs_one_round_trip_and_no_query(own_redis_server: RedisServer) -> None:
    _key, pair = made()
    use(pair.access_token)

    def calls() -> dict[str, int]:
        own = own_redis_server.client()
        counts = {name: row["calls"] for name, row in own.info("commandstats").items()}
        own.close()
        return counts

    before = calls()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(10):
            use(pair.access_token)
    after = calls()
    assert len(queries) == 0
    ours = {"cmdstat_evalsha": 10, "cmdstat_exists": 10}
    grown = {name: after[name] - before.get(name, 0) for name in after if "info" not in name and "client" not in name}
    assert {name: count for name, count in grown.items() if count} == ours


def test_a_cold_token_costs_two_queries() -> None:
    _key, pair = made()
    use(pair.access_token)
    elsewhere()
    with CaptureQueriesContext(connection) as queries:
        use(pair.access_token)
    assert len(queries) == 2


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_token_reaches_a_log_or_the_audit(caplog: pytest.LogCaptureFixture) -> None:
    key, pair = made()
    again = tokens.refresh_tokens(refresh_token=pair.refresh_token)
    tokens.revoke_token(caller=authenticate(key=key.key, actor_id="alice"), token=again.refresh_token)
    Client().get(f"/api/v1/nowhere?token={pair.access_token}", headers={"Authorization": f"Bearer {pair.access_token}"})
    formatter = RedactingFormatter("%(message)s")
    record = logging.getLogger("x").makeRecord(
        "x", 40, __file__, 1, "sent %r", ({"refresh": pair.refresh_token},), None
    )
    lines = [formatter.format(one) for one in [*caplog.records, record]]
    lines.append(redact(f"/callback?t={pair.access_token}&x=1"))
    lines.append(redact(pair.access_token[:80]))
    with connection.cursor() as cursor:
        for table in ("audit_log", "token_family", "revoked_token"):
            cursor.execute(f"SELECT * FROM {table}")
            lines.append(repr(cursor.fetchall()))
    text = "\n".join(lines)
    for pair_ in (pair, again):
        for token in (pair_.access_token, pair_.refresh_token):
            for part in token.split(".")[1:]:
                assert part[:40] not in text
    assert "eyJ" not in text


def test_the_family_does_not_say_for_whom_it_is() -> None:
    made(actor_id="cust-of-note")
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM token_family")
        assert "cust-of-note" not in repr(cursor.fetchall())


def test_what_is_over_is_pruned() -> None:
    key, pair = made()
    tokens.revoke_token(caller=authenticate(key=key.key, actor_id="alice"), token=pair.refresh_token)
    assert tokens.prune_tokens() == 0
    long_ago = now() - timedelta(hours=2)
    TokenFamily.objects.update(expires_at=long_ago)
    RevokedToken.objects.update(expires_at=long_ago)
    assert tokens.prune_tokens() == 2
