"""Whoever takes seals away and lets the sealer go on: the chain begins once, and goes on from nothing less than is
remembered of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from guard.audit import memory, origin, sealing
from guard.audit.models import AuditLog, AuditSeal
from guard.audit.ranges import each
from guard.audit.sealing import forget_chain
from tests.guard.audit.sealing import (
    first,
    forget_head,
    make_apart,
    make_rows,
    make_sealed,
    seal,
    seals,
    tamper,
    verify,
)  # fmt: skip

pytestmark = pytest.mark.django_db(transaction=True)


def make_old(many: int) -> list[int]:
    """Rows from before there were macs, and no seals yet."""
    ids = make_apart(many)
    tamper("UPDATE audit_log SET mac = '', link = ''", "DELETE FROM audit_seal")
    return ids


def begin(page: int = 5000) -> int:
    return origin.begin(connection, apps.get_model("guard", "AuditSeal"), page=page)


# --- how it begins --------------------------------------------------------------------------------------------------


def test_rows_without_a_mac_are_adopted_by_the_migration_and_counted() -> None:
    old = make_old(5)
    assert begin(page=2) == 5
    assert [(one.number, one.adopted) for one in AuditSeal.objects.order_by("number")] == [
        (0, old[1]), (1, old[3]), (2, old[4]),
    ]  # fmt: skip
    make_sealed(2)
    told = verify()
    assert (told["exit"], told["rows"], told["adopted"]) == (3, 7, 5)
    tamper(f"UPDATE audit_log SET code = 'X' WHERE id = {old[2]}")
    assert first(verify()) == (old[2], 1)


def test_it_begins_once() -> None:
    make_old(3)
    begin()
    make_rows(1)
    assert begin() == 0
    tamper("UPDATE audit_log SET mac = ''")
    assert begin() == 0
    assert AuditSeal.objects.count() == 1


def test_it_does_not_begin_again_where_a_chain_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    make_sealed(2)
    tamper("UPDATE audit_log SET mac = '', link = ''", "DELETE FROM audit_seal")
    assert begin() == 0
    assert not AuditSeal.objects.exists()
    assert "nothing is adopted" in caplog.text


def test_later_rows_without_a_mac_are_no_part_of_what_was_adopted() -> None:
    make_old(3)
    begin()
    new = make_rows(1)
    tamper(f"UPDATE audit_log SET mac = '', link = '' WHERE id = {new[0]}")
    seal()
    assert verify()["first_row"] == new[0]


# --- seals that are taken away --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["nowhere", "on disk", "in the process"])
def test_all_seals_wiped_and_the_log_rewritten(known: str, caplog: pytest.LogCaptureFixture) -> None:
    ids = make_sealed(3, 2)
    tamper(
        f"UPDATE audit_log SET actor_id = 'evil', mac = '', link = '' WHERE id = {ids[1]}",
        f"DELETE FROM audit_log WHERE id = {ids[3]}",
        "DELETE FROM audit_seal",
    )
    assert verify()["exit"] == 1, "before a sealer comes by"
    if known == "nowhere":
        forget_head()
    elif known == "on disk":
        forget_chain()
    else:
        memory.path().unlink()
    with caplog.at_level(logging.ERROR):
        seal()
    assert "is not there any more" in caplog.text
    told = verify()
    assert (told["exit"], told["first_row"], told["adopted"]) == (1, ids[1], 0)
    assert any("begun anew" in one["what"] or "missing" in one["what"] for one in told["findings"])
    assert any(one["row"] == ids[3] for one in told["findings"]), "a later row names the one that is gone"
    assert AuditLog.objects.filter(code="CHAIN_CUT").count() == 1
    make_sealed(1, 1)
    forget_head()
    assert verify()["exit"] == 1, "for good"
    assert AuditLog.objects.filter(code="CHAIN_CUT").count() == 1


@pytest.mark.parametrize("known", ["on disk", "in the process"])
def test_the_newest_seal_and_a_row_of_it_taken_away_is_no_gap(known: str) -> None:
    make_sealed(2)
    ids = make_apart(3)
    seal()
    tamper(f"DELETE FROM audit_log WHERE id = {ids[1]}", "DELETE FROM audit_seal WHERE number = 2")
    if known == "on disk":
        forget_chain()
    else:
        memory.path().unlink()
    assert seal().rows == 2
    forget_head()
    told = verify()
    assert (told["exit"], first(told)) == (1, (None, 2))
    assert seals().order_by("number")[1].number == 3


def test_two_sealers_that_miss_the_same_seal_make_one_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    make_sealed(2, 2)
    tamper("DELETE FROM audit_seal WHERE number = 2")
    real = sealing.rows_after

    def meanwhile(after_id: int, *, limit: int) -> Any:
        rows = real(after_id, limit=limit)
        monkeypatch.setattr(sealing, "rows_after", real)
        ours, sealing._known = sealing._known, None
        sealing._seal_one()  # the other process
        sealing._known = ours
        return rows

    monkeypatch.setattr(sealing, "rows_after", meanwhile)
    assert sealing.seal_waiting(seconds=0).lost is True
    seal()
    make_sealed(1)
    members = [one for found in seals().order_by("number") for one in each(found.members)]
    assert len(members) == len(set(members))
    told = verify()
    assert [one["seal"] for one in told["findings"]] == [2], "one hole"


def test_a_row_taken_away_before_it_was_sealed_is_named_by_the_next_of_its_process() -> None:
    ids = make_rows(3)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[1]}")
    seal()
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[1])
    assert f"row {ids[2]} of the same process names it" in told["findings"][0]["what"]


def test_nothing_remembered_and_nothing_later_is_not_told_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    make_sealed(1)
    make_apart(1)
    seal()
    tamper("DELETE FROM audit_log ORDER BY id DESC LIMIT 1" if connection.vendor == "mysql" else
           "DELETE FROM audit_log WHERE id = (SELECT MAX(id) FROM audit_log)",
           "DELETE FROM audit_seal WHERE number = 2")  # fmt: skip
    forget_head()
    told = verify()
    assert (told["exit"], told["remembered"], told["anchored"]) == (3, None, None)


def test_another_database_of_the_same_machine_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = memory.path()
    monkeypatch.setitem(connection.settings_dict, "NAME", "another")
    assert memory.path() != here


def test_what_cannot_be_remembered_stops_no_sealing(settings: object, caplog: pytest.LogCaptureFixture) -> None:
    settings.AUDIT_MEMORY_DIR = "/proc/nowhere"  # type: ignore[attr-defined]
    assert make_sealed(2)
    assert seals().count() == 1
    assert "cannot be remembered" in caplog.text
    assert verify()["exit"] == 3


def test_a_memory_that_is_spoilt_is_none(caplog: pytest.LogCaptureFixture) -> None:
    make_sealed(1)
    for spoilt in (b"", b"\xff\xfe", b"[" * 20000, b'{"number": 1e999}'):
        memory.path().write_bytes(spoilt)
        forget_chain()
        assert verify()["exit"] == 3
        assert seal().seals == 1, "the row of that verification"


# --- junk -----------------------------------------------------------------------------------------------------------

COLUMNS = ", ".join(field.column for field in AuditSeal._meta.concrete_fields if field.column != "number")


def junk(number: int, **changed: str) -> str:
    columns = ", ".join(changed.get(name, name) for name in COLUMNS.split(", "))
    return f"INSERT INTO audit_seal (number, {COLUMNS}) SELECT {number}, {columns} FROM audit_seal WHERE number = 1"


@pytest.mark.parametrize("number", [3, 1_000_000, 2**63 - 1, -4])
@pytest.mark.parametrize("changed", [
    {}, {"members": "'{{'"}, {"members": "'[[1,9000000000000]]'", "count": "2000000000"}, {"count": "7"},
    {"members": "'[[5,2]]'"}, {"members": "'null'"}, {"key_id": "'k-old'"}, {"opened": "'[[1,9223372036854775807]]'"},
    {"members": "'" + "[" * 5000 + "'"}, {"head_id": "9223372036854775807"}, {"mac": "'zz'"},
])  # fmt: skip
def test_a_seal_that_is_none_is_named_and_all_goes_on(number: int, changed: dict[str, str]) -> None:
    make_sealed(1, 1)
    with connection.cursor() as cursor:
        cursor.execute(junk(number, **changed))
    for starting_anew in (False, True):
        if starting_anew:
            forget_chain()
        make_sealed(1)
        told = verify()
        assert told["exit"] == 1
        assert [one["seal"] for one in told["findings"]] == [number]
        assert (told["first_row"], told["unchecked"]) == (None, 0)
    numbers = list(seals().exclude(number=number).order_by("number").values_list("number", flat=True))
    assert len(numbers) == 4
    assert max(numbers) <= 6, "the next numbers that are free"


def test_junk_with_a_strange_key_that_follows_exactly_stops_nothing_and_is_named() -> None:
    """It cannot be told from a newer key of another sealer until ours has gone on after it."""
    make_sealed(1, 1)
    head = AuditSeal.objects.get(number=2)
    with connection.cursor() as cursor:
        place = {"previous_mac": f"'{head.mac}'", "from_id": str(head.head_id), "head_id": str(head.head_id)}
        nothing = {"members": "'[]'", "leaves": "''", "opened": "'[]'", "count": "0"}
        cursor.execute(junk(3, key_id="'k-old'", **place, **nothing))
    make_sealed(1, 1)
    told = verify()
    assert (told["exit"], first(told)) == (1, (None, 3))
