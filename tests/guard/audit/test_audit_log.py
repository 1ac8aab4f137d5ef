"""The audit log takes rows and gives none back: on both databases, by whatever statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from config.base.errors import CATALOGUE
from config.base.fields import canonical_json
from guard.audit import triggers
from guard.audit.models import VOCABULARY, AuditLog, Decision, EventType
from guard.audit.services import MAX_SUMMARY_BYTES, record

pytestmark = pytest.mark.django_db(transaction=True)


def make_row(**fields: Any) -> AuditLog:
    values = {"tenant": "default", "event_type": "authz", "decision": "forbidden", "actor_id": "wei"} | fields
    return record(**values)


def statements() -> list[str]:
    columns = (
        "(id, tenant, at, event_type, decision, actor_type, actor_id, on_behalf_of, agent, object_type, object_id, "
        "code, trace_id, input_summary)"
    )
    values = (
        "({id}, 'x', '2026-01-01 00:00:00', 'authz', 'forbidden', 'agent', 'forged', '', '', '', '', '', '', '{{}}')"
    )
    common = [
        "UPDATE audit_log SET actor_id = 'someone-else'",
        "DELETE FROM audit_log",
        f"REPLACE INTO audit_log {columns} VALUES {values}",
    ]
    if connection.vendor == "mysql":
        return [*common, f"INSERT INTO audit_log {columns} VALUES {values} ON DUPLICATE KEY UPDATE actor_id = 'forged'"]
    return [
        *common,
        f"INSERT OR REPLACE INTO audit_log {columns} VALUES {values}",
        f"INSERT INTO audit_log {columns} VALUES {values} ON CONFLICT (id) DO UPDATE SET actor_id = 'forged'",
    ]


def test_no_statement_changes_or_removes_a_row() -> None:
    row = make_row()
    before = AuditLog.objects.values().get()
    for statement in statements():
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement.format(id=row.pk))
    assert AuditLog.objects.values().get() == before


def test_nor_does_the_orm() -> None:
    row = make_row()
    row.actor_id = "forged"
    rows = AuditLog.objects.all()
    for work in (
        row.save,
        row.delete,
        rows.delete,
        lambda: rows.update(actor_id="forged"),
        lambda: rows.bulk_update([row], ["actor_id"]),
    ):
        with pytest.raises(DatabaseError, match="INSERT only"), transaction.atomic():
            work()
    assert AuditLog.objects.get().actor_id == "wei"


def test_migrate_puts_triggers_back_also_ones_that_were_made_harmless() -> None:
    assert triggers.missing(connection) == []
    triggers.drop(connection)
    gone = triggers.missing(connection)
    assert {"audit_log_refuse_update", "audit_log_refuse_delete", "audit_seal_refuse_update"} <= set(gone)
    call_command("migrate", verbosity=0)
    assert triggers.missing(connection) == []
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER audit_log_refuse_delete")
        cursor.execute(
            "CREATE TRIGGER audit_log_refuse_delete BEFORE DELETE ON audit_log FOR EACH ROW "
            + ("BEGIN SELECT 1; END" if connection.vendor == "sqlite" else "SET @harmless = 1")
        )
    assert triggers.missing(connection) == ["audit_log_refuse_delete"]
    triggers.install(connection)
    assert triggers.missing(connection) == []
    make_row()
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditLog.objects.all().delete()


@contextmanager
def as_account(name: str) -> Iterator[None]:
    """The same database through another account, whose password is its name."""
    own = connection.settings_dict.copy()
    connection.close()
    connection.settings_dict.update(USER=name, PASSWORD=name)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(USER=own["USER"], PASSWORD=own["PASSWORD"])


@pytest.mark.mariadb
@pytest.mark.parametrize("rows", [0, 1])
def test_an_account_that_may_not_see_triggers_knows_whether_they_refuse(rows: int) -> None:
    """The account that serves has SELECT, INSERT, UPDATE and DELETE: readiness must be possible with these."""
    for _ in range(rows):
        make_row()
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER serving@'%' IDENTIFIED BY 'serving'")
        cursor.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{name}`.* TO serving@'%'")
    try:
        with as_account("serving"):
            assert triggers.missing(connection) == []
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER audit_log_refuse_delete")
        with as_account("serving"):
            assert triggers.missing(connection) == ["audit_log_refuse_delete"]
    finally:
        triggers.install(connection)
        with connection.cursor() as cursor:
            cursor.execute("DROP USER serving@'%'")
    assert AuditLog.objects.count() == rows, "what was tried was rolled back"


def test_the_vocabulary_is_closed() -> None:
    assert set(VOCABULARY) == set(EventType.values)
    assert set().union(*VOCABULARY.values()) == set(Decision.values)
    for event, decision in (
        ("authz", "success"),
        ("authz", ""),
        ("gossip", "forbidden"),
        ("profile_write", "detected"),
    ):
        with pytest.raises(ValueError, match="vocabulary"):
            make_row(event_type=event, decision=decision)
    with pytest.raises(ValueError, match="actor type"):
        make_row(actor_type="robot")
    for score in (-1, 101):
        with pytest.raises(ValueError, match="0 to 100"):
            make_row(risk_score=score)
    assert not AuditLog.objects.exists()


def test_a_summary_over_2_kb_keeps_its_size_and_what_is_looked_for() -> None:
    fits = {"code": "X", "text": "a" * (MAX_SUMMARY_BYTES - 22)}
    assert len(canonical_json(fits).encode()) == MAX_SUMMARY_BYTES
    assert make_row(input_summary=fits).input_summary == fits
    over = make_row(input_summary={**fits, "text": "字" * 700, "trade_id": "T1", "target": "x" * 300}).input_summary
    assert over["omitted_bytes"] > MAX_SUMMARY_BYTES
    assert {name: value for name, value in over.items() if name != "omitted_bytes"} == {"code": "X", "trade_id": "T1"}
    assert AuditLog.objects.get(pk=AuditLog.objects.order_by("-id")[0].pk).input_summary == over


def test_what_looks_like_a_key_is_not_kept() -> None:
    row = make_row(input_summary={"header": "Bearer xh_" + "k" * 43})
    assert "kkk" not in str(row.input_summary)


def test_long_names_are_cut_and_not_refused() -> None:
    row = make_row(actor_id="a" * 100, object_id="o" * 100, on_behalf_of="b" * 100)
    assert (len(row.actor_id), len(row.object_id), len(row.on_behalf_of)) == (64, 64, 64)


def test_a_row_belongs_to_the_decisions_transaction() -> None:
    with transaction.atomic():
        make_row()
        transaction.set_rollback(True)
    assert not AuditLog.objects.exists()


def test_every_error_code_fits_its_column() -> None:
    """SQLite would keep a longer one, MariaDB refuses the row and with it the answer."""
    room = AuditLog._meta.get_field("code").max_length
    assert [code for code in CATALOGUE if len(code) > room] == []
