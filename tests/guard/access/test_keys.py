"""An agent key's life: issued once, kept as a digest, expired, revoked, never in a log."""

from __future__ import annotations

import io
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from config.base.errors import DomainError
from config.base.redact import HIDDEN, RedactingFormatter, redact
from guard.access import services
from guard.access.models import AgentPrincipal
from guard.access.services import authenticate, issue_key, revoke_key
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of

pytestmark = pytest.mark.django_db(transaction=True)


def code_of(**call: Any) -> str:
    with pytest.raises(DomainError) as refusal:
        authenticate(**call)
    return refusal.value.code


def test_a_key_is_shown_once_and_only_its_digest_is_kept() -> None:
    issued = issue_key(agent="customer", note="for the app")
    caller = authenticate(key=issued.key, actor_id="alice")
    assert (caller.tenant, caller.agent, caller.actor_id) == ("default", "customer", "alice")
    assert caller.principal_id == issued.principal.principal_id
    with connection.cursor() as cursor:
        for table in ("agent_principal", "audit_log"):
            cursor.execute(f"SELECT * FROM {table}")
            assert issued.key[3:] not in repr(cursor.fetchall())
    row = AuditLog.objects.get()
    assert (row.event_type, row.decision, row.object_id) == ("principal", "issued", issued.principal.principal_id)
    assert issue_key(agent="customer").key != issued.key


def test_expired_revoked_and_unknown_keys_each_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = issue_key(agent="customer", expires_in=timedelta(hours=1))
    assert authenticate(key=issued.key, actor_id="alice")
    with monkeypatch.context() as patch:
        patch.setattr(services, "now", lambda: now() + timedelta(hours=1))  # also out of the cache
        assert code_of(key=issued.key, actor_id="alice") == "KEY_EXPIRED"
    assert authenticate(key=issued.key, actor_id="alice")
    revoke_key(principal_id=issued.principal.principal_id, revoked_by="ops")
    assert code_of(key=issued.key, actor_id="alice") == "KEY_REVOKED"
    for unknown in (
        issued.key + "x",
        issued.key.upper(),
        "xh_",
        "",
        "password",
        "xh_" + "é" * 43,
        "xh_" + "a" * 10_000,
    ):
        assert code_of(key=unknown, actor_id="alice") == "UNAUTHENTICATED"


def test_revoking_twice_keeps_the_first_time_and_writes_one_row() -> None:
    principal_id = issue_key(agent="risk").principal.principal_id
    first = revoke_key(principal_id=principal_id, revoked_by="ops").revoked_at
    assert revoke_key(principal_id=principal_id, revoked_by="ops").revoked_at == first
    assert AuditLog.objects.filter(event_type="principal", decision="revoked").count() == 1


def test_a_revocation_counts_at_once_also_against_a_reader_that_was_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = issue_key(agent="customer")
    original = AgentPrincipal.objects.filter

    def slow_filter(*args: Any, **kwargs: Any) -> Any:
        rows = original(*args, **kwargs)
        if "key_digest" in kwargs:
            monkeypatch.setattr(AgentPrincipal.objects, "filter", original)
            row = rows.order_by().first()  # read before ...
            revoke_key(principal_id=issued.principal.principal_id, revoked_by="ops")  # ... the revocation
            monkeypatch.setattr(rows, "order_by", lambda: type("Rows", (), {"first": staticmethod(lambda: row)})())
        return rows

    monkeypatch.setattr(AgentPrincipal.objects, "filter", slow_filter)
    authenticate(key=issued.key, actor_id="alice")  # that request had begun
    assert code_of(key=issued.key, actor_id="alice") == "KEY_REVOKED"  # the next one had not


def test_an_edit_in_the_console_counts_at_once() -> None:
    issued = issue_key(agent="customer")
    authenticate(key=issued.key, actor_id="alice")
    issued.principal.expires_at = now() - timedelta(seconds=1)
    issued.principal.save()
    assert code_of(key=issued.key, actor_id="alice") == "KEY_EXPIRED"
    issued.principal.delete()
    assert code_of(key=issued.key, actor_id="alice") == "UNAUTHENTICATED"


def test_a_key_is_read_again_after_five_seconds(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.PRINCIPAL_CACHE_SECONDS <= 5
    issued = issue_key(agent="customer")
    clock = [1000.0]
    monkeypatch.setattr(services.time, "monotonic", lambda: clock[0])
    authenticate(key=issued.key, actor_id="alice")
    # Another process revokes: nothing tells this one.
    AgentPrincipal.objects.filter(pk=issued.principal.pk).update(revoked_at=now())
    clock[0] += 4.9
    with CaptureQueriesContext(connection) as queries:
        authenticate(key=issued.key, actor_id="alice")
    assert len(queries) == 0
    clock[0] += 0.2
    assert code_of(key=issued.key, actor_id="alice") == "KEY_REVOKED"


# --- the actor ----------------------------------------------------------------------------------------------------


def test_a_bound_key_needs_no_header_and_refuses_another_actor() -> None:
    issued = issue_key(agent="customer", actor_id="alice")
    assert authenticate(key=issued.key, actor_id=None).actor_id == "alice"
    assert authenticate(key=issued.key, actor_id="alice").actor_id == "alice"
    for other in ("bob", "Alice"):
        before = AuditLog.objects.count()
        assert code_of(key=issued.key, actor_id=other) == "NOT_OWNER"
        row = AuditLog.objects.order_by("-id")[0]
        assert AuditLog.objects.count() == before + 1
        assert (row.decision, row.input_summary["code"], row.actor_id, row.object_id) == (
            "forbidden",
            "NOT_OWNER",
            pseudonym_of("default", "alice"),
            pseudonym_of("default", other),
        )
    for odd in ("alice ", "a:b", "x" * 300):
        assert code_of(key=issued.key, actor_id=odd) == "INVALID_ID"


def test_an_unbound_key_needs_the_header() -> None:
    issued = issue_key(agent="customer")
    for nobody in (None, ""):
        assert code_of(key=issued.key, actor_id=nobody) == "INVALID_REQUEST"
    for odd in ("a:b", "a*", "x" * 65, "客户", "a b", "a\n"):
        assert code_of(key=issued.key, actor_id=odd) == "INVALID_ID"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic eHg6eHg=", "xh_abc", "Bearer xh_abc def", "Token xh_abc", "Bearer \xff"],
)
def test_a_header_that_carries_no_key_is_a_401_with_a_challenge(header: str | None) -> None:
    headers = {"X-Actor-Id": "alice"} | ({"Authorization": header} if header is not None else {})
    response = Client().get("/api/v1/profiles/l1/alice", headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")
    assert response["WWW-Authenticate"] == "Bearer"


def test_the_scheme_is_read_without_regard_to_case_and_the_key_with_it() -> None:
    key = issue_key(agent="customer").key
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"X-Actor-Id": "alice", "Authorization": f"{scheme} {key}"}
        assert Client().get("/api/v1/profiles/l1/alice", headers=headers).status_code == 404


def test_with_the_database_away_a_known_key_works_for_five_seconds_and_others_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, unknown = issue_key(agent="customer"), issue_key(agent="customer")
    authenticate(key=known.key, actor_id="alice")

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError(2006, "MySQL server has gone away")

    monkeypatch.setattr(AgentPrincipal.objects, "filter", away)
    assert authenticate(key=known.key, actor_id="alice")
    headers = {"X-Actor-Id": "alice", "Authorization": f"Bearer {unknown.key}"}
    response = Client().get("/api/v1/profiles/l1/alice", headers=headers)
    assert (response.status_code, response.json()["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert response["Retry-After"] == "1"


# --- ids ----------------------------------------------------------------------------------------------------------


def test_ids_that_differ_by_case_or_a_space_are_different_ids() -> None:
    """MariaDB's usual collations take 'alice ' and 'Alice' for 'alice'."""
    for actor_id in ("alice", "Alice", "alice ", "álice"):
        AgentPrincipal.objects.create(agent="customer", actor_id=actor_id, key_digest=f"digest {actor_id}")
        AgentPrincipal.objects.create(agent="customer", actor_id="x", key_digest=actor_id)  # unique
    for actor_id in ("alice", "Alice", "alice ", "álice"):
        assert AgentPrincipal.objects.get(actor_id=actor_id).key_digest == f"digest {actor_id}"
        assert AgentPrincipal.objects.get(key_digest=actor_id).actor_id == "x"
    assert list(
        AgentPrincipal.objects.filter(actor_id__gte="alice", actor_id__lte="alice").values_list("actor_id", flat=True)
    ) == ["alice"]


# --- logs ---------------------------------------------------------------------------------------------------------


def test_a_key_never_reaches_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    key = issue_key(agent="customer").key
    formatter = RedactingFormatter("%(message)s")
    try:
        raise ValueError(f"could not send Authorization: Bearer {key}")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, __file__, 1, "GET /api/v1/x?key=%s %s", (key, {"Authorization": f"Bearer {key}"}),
            __import__("sys").exc_info(),
        )  # fmt: skip
    line = formatter.format(record)
    assert key not in line
    assert key[3:20] not in line
    assert line.count(HIDDEN) >= 3
    assert "GET /api/v1/x?key=" in line
    assert redact("the bearer of this, a bearer bond") == "the bearer of this, a bearer bond"
    assert redact("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x") == f"Authorization: Bearer {HIDDEN}"


def test_the_sites_own_handlers_use_that_formatter(settings: Any) -> None:
    writing = [one for one in settings.LOGGING["handlers"].values() if one["class"] != "logging.NullHandler"]
    assert writing
    for handler in writing:
        assert settings.LOGGING["formatters"][handler["formatter"]]["()"] == "config.base.redact.RedactingFormatter"


def test_a_request_with_a_key_in_its_path_answers_and_logs_without_it(caplog: pytest.LogCaptureFixture) -> None:
    key = issue_key(agent="customer").key
    Client().get(f"/api/v1/nowhere/{key}?k={key}", headers={"Authorization": f"Bearer {key}"})
    formatter = RedactingFormatter("%(message)s")
    assert key not in " ".join(formatter.format(record) for record in caplog.records)


# --- the command --------------------------------------------------------------------------------------------------


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("agent_key", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_prints_a_working_key_once() -> None:
    answer = json.loads(run("--agent", "advisor", "--actor", "wei", "--json"))
    assert set(answer) == {"key", "principal"}
    caller = authenticate(key=answer["key"], actor_id=None)
    assert (caller.agent, caller.actor_id, caller.principal_id) == ("advisor", "wei", answer["principal"])
    plain = run("--agent", "customer", "--tenant", "acme", "--expires-in", "12h")
    key = next(word for word in plain.split() if word.startswith("xh_"))
    assert plain.count(key) == 1
    assert authenticate(key=key, actor_id="x").tenant == "acme"
    row = AgentPrincipal.objects.get(tenant="acme")
    assert timedelta(hours=11, minutes=59) < row.expires_at - row.created_at <= timedelta(hours=12)  # type: ignore[operator]


def test_the_command_lists_and_revokes() -> None:
    answer = json.loads(run("--agent", "risk", "--note", "night shift", "--json"))
    [listed] = json.loads(run("--list", "--json"))
    assert (listed["principal"], listed["state"], listed["note"]) == (answer["principal"], "active", "night shift")
    assert answer["key"][3:] not in run("--list") + json.dumps(listed)
    assert json.loads(run("--revoke", answer["principal"], "--json"))["principal"] == answer["principal"]
    assert code_of(key=answer["key"], actor_id="x") == "KEY_REVOKED"
    assert json.loads(run("--list", "--json"))[0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("args", "returncode"),
    [
        ((), 2),
        (("--agent", "risk", "--expires-in", "soon"), 2),
        (("--agent", "risk", "--expires-in", "0d"), 2),
        (("--agent", "risk", "--expires-in", "999999w"), 2),
        (("--agent", "risk", "--actor", "a:b"), 2),
        (("--agent", "risk", "--tenant", "a b"), 2),
        (("--agent", "risk", "--note", "n" * 201), 2),
        (("--agent", "risk", "--note", "xh_" + "k" * 43), 2),
        (("--revoke", "nobody"), 1),
        (("--revoke", "x", "--list"), 2),
    ],
)
def test_the_command_refuses_with_a_sentence_and_a_code(args: tuple[str, ...], returncode: int) -> None:
    with pytest.raises(CommandError) as refusal:
        run(*args)
    assert refusal.value.returncode == returncode
    assert len(str(refusal.value)) > 20
    assert not AgentPrincipal.objects.exists()
