"""A decision whose row the database refuses, for whatever reason, is 503 with its code, and is not taken."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DataError, IntegrityError, InterfaceError, InternalError, OperationalError, connection
from django.test import Client

from config.base.errors import DomainError
from guard.access.models import AgentPrincipal, TokenFamily
from guard.access.services import issue_key
from guard.admission.blocks import block_actor
from guard.admission.models import ActorBlock, AgentPause
from guard.audit import pseudonyms, triggers
from guard.audit.models import AuditLog
from memory.profiles.models import CustomerProfileL1
from tests.guard.access.test_refusals_http import REFUSED, ids
from tests.risk.console.make import make_auditor, make_client, make_officer

pytestmark = pytest.mark.django_db(transaction=True)
FAILURES = [
    OperationalError(1021, "Disk full"),
    OperationalError("database or disk is full"),
    IntegrityError("no rows today"),
    InternalError(5, "Out of memory"),
    DataError(1264, "Out of range value for column 'id'"),
    InterfaceError(0, ""),
]


@contextlib.contextmanager
def no_rows_for(table: str = "audit_log") -> Iterator[None]:
    """Somebody's own trigger: the database answers, and refuses the row."""
    body = (
        "BEGIN SELECT RAISE(ABORT, 'no rows today'); END"
        if connection.vendor == "sqlite"
        else "FOR EACH ROW SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1048, MESSAGE_TEXT = 'no rows today'"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TRIGGER no_rows_today BEFORE INSERT ON {table} {body}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER no_rows_today")


class Service:
    def __init__(self, agent: str, actor: str) -> None:
        key = issue_key(agent=agent).key
        self.headers = {"Authorization": f"Bearer {key}", "X-Actor-Id": actor}

    def __call__(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        answer = Client().generic(
            method, f"/api/v1{path}", body.encode(), content_type="application/json", headers=self.headers
        )
        return answer.status_code, answer.json().get("code", "")


AWAY = (503, "DATABASE_UNAVAILABLE")


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: f"{type(error).__name__}{error.args[0]}")
def test_whatever_the_database_says(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    analyst, bob = Service("analyst", "x"), Service("customer", "bob")

    def refused(self: AuditLog, *_args: Any, **_kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(AuditLog, "save", refused)
    assert analyst("GET", "/profiles/l1/alice") == AWAY
    assert analyst("POST", "/tokens") == AWAY
    assert bob("PUT", "/profiles/l1/bob", "{}") == AWAY
    assert not TokenFamily.objects.exists()
    assert not CustomerProfileL1.objects.exists()


one_of_each = ids  # the fixture of that table


def test_every_route_that_refuses_says_503_without_the_row(one_of_each: dict[str, str]) -> None:
    asked = [
        (route.split(" "), Service(agent, actor)) for route, who in REFUSED.items() for agent, actor, _code in who[:1]
    ]
    keys = AgentPrincipal.objects.count()
    with no_rows_for():
        for (method, path), service in asked:
            assert service(method, path.format(**one_of_each), "{}") == AWAY, (method, path)
    assert AgentPrincipal.objects.count() == keys


def test_nothing_of_a_decision_is_left_without_its_row() -> None:
    customer, token = Service("customer", "bob"), Service("risk", "r")
    with no_rows_for():
        assert token("POST", "/tokens") == AWAY
        assert customer("PUT", "/profiles/l1/bob", "{}") == AWAY
        assert token("GET", "/profiles/l1/alice")[0] == 404, "what is no decision goes on"
        for decide in (
            lambda: block_actor(tenant="default", actor_id="bob", code="X", by="guard.inputs"),
            lambda: issue_key(agent="risk"),
        ):
            with pytest.raises(DomainError) as refused:
                decide()
            assert (refused.value.status, refused.value.code) == AWAY
    assert not TokenFamily.objects.exists()
    assert not CustomerProfileL1.objects.exists()
    assert not ActorBlock.objects.exists()
    assert AgentPrincipal.objects.count() == 2
    assert token("POST", "/tokens")[0] == 201, "and is taken when rows are"


def test_a_customer_whose_name_cannot_be_kept_is_refused_in_bounded_time() -> None:
    bob = Service("customer", "bob")
    with no_rows_for("customer_pseudonym"):
        assert bob("GET", "/profiles/l1/alice") == AWAY
    assert bob("GET", "/profiles/l1/alice") == (403, "NOT_OWNER")
    assert pseudonyms.count("default") > 0


def test_the_console_says_so_too_and_does_nothing() -> None:
    officer, auditor = make_client(make_officer()), make_client(make_auditor())
    with no_rows_for():
        for client, method, path in (
            (officer, "post", "/admin/guard/agentpause/add/"),
            (auditor, "get", "/admin/guard/auditlog/export/csv/"),
            (auditor, "get", "/admin/risk/riskalert/"),  # refused, without its row
        ):
            answer = getattr(client, method)(path, {"agent": "risk", "reason": "because"})
            assert answer.status_code == 503, path
            assert answer["Retry-After"]
            assert "DATABASE_UNAVAILABLE" in answer.content.decode()
    assert not AgentPause.objects.exists()


# --- before a decision meets it ---------------------------------------------------------------------------------------


def make_forged(row_id: int) -> None:
    """By INSERT, past the product."""
    columns = {
        "id": row_id, "tenant": "x", "at": "2026-01-01 00:00:00", "event_type": "authz", "decision": "forbidden",
        "actor_type": "agent", "actor_id": "x", "on_behalf_of": "", "agent": "", "object_type": "", "object_id": "",
        "code": "", "trace_id": "", "input_summary": "{}",
    }  # fmt: skip
    places = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO audit_log ({', '.join(columns)}) VALUES ({places})", list(columns.values()))


def reasons() -> str:
    answer = Client().get("/health/ready")
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command("doctor", stdout=out)
    told = " ".join(one for one in answer.json()["reasons"] if one.startswith("audit_rows"))
    assert not told or told.removeprefix("audit_rows: ") in out.getvalue()
    return told


@pytest.fixture
def ids_begin_anew() -> Iterator[None]:
    """The table's counter outlives what a test inserts."""
    yield
    with connection.cursor() as cursor:
        triggers.drop(connection)
        cursor.execute("DELETE FROM audit_log")
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'audit_log'")
        else:
            cursor.execute("ALTER TABLE audit_log AUTO_INCREMENT = 1")
    triggers.install(connection)


def test_ids_that_are_used_up_are_told_in_words_and_decisions_are_refused(ids_begin_anew: None) -> None:
    analyst = Service("analyst", "x")
    assert reasons() == ""
    make_forged(2**63 - 1)
    assert analyst("GET", "/profiles/l1/alice") == AWAY
    assert analyst("POST", "/tokens") == AWAY
    assert "its ids are used up" in reasons()


def test_a_row_that_stands_far_off_is_told_while_there_are_ids(ids_begin_anew: None) -> None:
    make_forged(2**63 - 10)
    assert "9 ids are left" in reasons()
    assert Service("analyst", "x")("GET", "/profiles/l1/alice") == (403, "AUTH_403_SCOPE")


def test_a_trigger_of_somebodys_is_named() -> None:
    with no_rows_for():
        assert "no_rows_today" in reasons()
    assert reasons() == ""
