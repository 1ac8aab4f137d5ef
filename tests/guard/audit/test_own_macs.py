"""What a row says by itself: its key, its place among the rows of its process, and that it is there once."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from config.base.clock import now
from guard.audit import chain, copies, links, sealing, verifying
from guard.audit.canonical import sign_row
from guard.audit.models import AuditLog, AuditSeal
from guard.audit.ranges import each, holds
from guard.audit.sealing import forget_chain
from tests.guard.audit.sealing import (
    make_apart,
    make_row,
    make_rows,
    make_sealed,
    seal,
    tamper,
    verify,
)  # fmt: skip
from tests.guard.audit.test_tampering import insert_copy, swap

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = ("k1", b"1" * 32), ("k2", b"2" * 32)


# --- exchanged, copied ----------------------------------------------------------------------------------------------


def exchange_ids(one: int, other: int) -> list[str]:
    return [
        f"UPDATE audit_log SET id = -1 WHERE id = {one}",
        f"UPDATE audit_log SET id = {one} WHERE id = {other}",
        f"UPDATE audit_log SET id = {other} WHERE id = -1",
    ]


@pytest.mark.parametrize("far", [True, False])
def test_rows_that_exchange_ids_before_they_are_sealed(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if far:
        monkeypatch.setattr(verifying, "AT_HAND", 0)
    ids = make_rows(4)
    tamper(*exchange_ids(ids[1], ids[2]))
    assert verify()["first_row"] == ids[1], "even before"
    seal()
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[1])
    assert {one["row"] for one in told["findings"]} == {ids[1], ids[2]}


def test_rows_of_two_processes_that_exchange_ids_show_when_one_of_them_writes_again() -> None:
    [one] = make_apart(1)
    two = make_row().pk
    tamper(*exchange_ids(one, two))
    make_row()
    seal()
    assert verify()["first_row"] == two


@pytest.mark.parametrize("column", ["actor_id", "code", "input_summary", "link", "mac", "at"])
def test_rows_that_exchange_one_column_before_they_are_sealed(column: str) -> None:
    ids = [make_row(actor_id=f"a{n}", code=f"C{n}", input_summary={"action": f"a{n}"}).pk for n in range(3)]
    tamper(*swap_column(column, ids[0], ids[1]))
    seal()
    assert verify()["first_row"] == ids[0]


def swap_column(column: str, one: int, other: int) -> list[str]:
    return [
        f"CREATE TABLE swapped AS SELECT id, {column} FROM audit_log",
        f"UPDATE audit_log SET {column} = (SELECT {column} FROM swapped WHERE id = {other}) WHERE id = {one}",
        f"UPDATE audit_log SET {column} = (SELECT {column} FROM swapped WHERE id = {one}) WHERE id = {other}",
        "DROP TABLE swapped",
    ]


def test_all_of_two_rows_exchanged_is_the_same() -> None:
    ids = make_rows(3)
    tamper(*swap(ids[0], ids[1]))
    seal()
    assert verify()["first_row"] == ids[0]


def test_a_copy_is_found_however_far_its_original_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_HELD_BYTES", 1)  # every row goes to the files
    ids = make_sealed(3, 40)
    tamper(insert_copy(ids[0], ids[-1] + 1))
    seal()
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[-1] + 1)
    assert f"copy of row {ids[0]}" in told["findings"][0]["what"]


def test_copies_in_any_number_of_rows() -> None:
    found = copies.Copies()
    for row in range(300_000):
        found.add(row.to_bytes(16, "little"), row, -1)
    found.add((7).to_bytes(16, "little"), 300_001, 9)
    assert list(found.found()) == [(300_001, 7, 9)]
    found.close()


def test_equal_rows_of_one_moment_are_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    at = now()
    rows = [AuditLog(tenant="default", at=at, event_type="authz", decision="forbidden", actor_id="a") for _ in range(2)]
    for row in rows:
        row.link = links.next_link()
        row.mac = sign_row(row)
        row.save(force_insert=True)
    seal()
    assert verify()["exit"] == 3


def test_what_is_rolled_back_is_named_by_nobody() -> None:
    make_rows(1)
    with transaction.atomic():
        make_row()
        transaction.set_rollback(True)
    with transaction.atomic():
        try:
            with transaction.atomic():
                make_row()
                raise LookupError
        except LookupError:
            pass
        make_row()
    make_rows(2)
    seal()
    assert verify()["exit"] == 3


def test_a_link_is_short_whatever_waits_to_be_named() -> None:
    for number in range(500):
        links.committed(2**63 - 1 - number, "k:" + "f" * 64, "")
    assert len(links.next_link()) < 180
    row = make_row()
    assert len(row.link) <= 255
    links.forget()


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mac", ["old:", "k1:", "", ":"])
def test_an_edit_under_a_strange_key(mac: str) -> None:
    ids = make_rows(3)
    tail = "SUBSTR(mac, -64)"
    joined = f"CONCAT('{mac}', {tail})" if connection.vendor == "mysql" else f"'{mac}' || {tail}"
    tamper(f"UPDATE audit_log SET actor_id = 'evil', mac = {joined} WHERE id = {ids[1]}")
    seal()
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[1])


@pytest.mark.parametrize("which", ["number = 2", "number > 0", "number >= 0"])
def test_a_row_edited_under_seals_with_strange_keys(which: str) -> None:
    ids = make_sealed(2, 2, 2)
    tamper(
        f"UPDATE audit_log SET actor_id = 'evil' WHERE id = {ids[3]}",
        f"UPDATE audit_seal SET key_id = 'k-old' WHERE {which}",
    )
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[3])


def test_a_key_that_is_really_gone_is_not_checked_and_its_rows_are_compared_all_the_same(settings: Any) -> None:
    settings.AUDIT_SEAL_KEYS = [OLD]
    ids = make_sealed(2, 2)
    settings.AUDIT_SEAL_KEYS = [NEW]
    make_sealed(2)
    told = verify()
    assert (told["exit"], told["unknown_keys"], told["first_row"]) == (2, ["k1"], None)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("verify_audit", stdout=out)
    assert "(exit 2)" in out.getvalue()
    assert "(exit 3)" not in out.getvalue()
    tamper(f"DELETE FROM audit_log WHERE id = {ids[0]}")
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[0])


def test_keys_change_one_process_after_the_other(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Writers have the new key first; the sealer and who verifies have not."""
    settings.AUDIT_SEAL_KEYS = [OLD]
    make_sealed(1)
    settings.AUDIT_SEAL_KEYS = [NEW, OLD]
    ids = make_rows(3)
    settings.AUDIT_SEAL_KEYS = [OLD]
    with caplog.at_level(logging.WARNING):
        seal()
    assert not AuditLog.objects.filter(code="ROW_MAC").exists()
    assert "changed" not in caplog.text
    assert verify()["exit"] == 3, "the second mac of each row is the old key's"
    settings.AUDIT_SEAL_KEYS = [NEW, OLD]
    make_sealed(1)
    assert verify()["exit"] == 3
    settings.AUDIT_SEAL_KEYS = [OLD]
    forget_chain()
    make_sealed(1)
    assert verify()["exit"] == 1, "seals of a key that is not here among those of one key"
    settings.AUDIT_SEAL_KEYS = [NEW, OLD]
    assert verify()["exit"] == 3, "and whole when the key is here"
    tamper(f"UPDATE audit_log SET actor_id = 'evil' WHERE id = {ids[1]}")
    assert verify()["first_row"] == ids[1]


def test_a_writer_that_has_the_new_key_alone_is_not_called_a_forger(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AUDIT_SEAL_KEYS = [OLD]
    make_sealed(1)
    secret, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    settings.AUDIT_SEAL_KEYS = [NEW]
    make_rows(2)
    settings.SECRET_KEY = secret
    settings.AUDIT_SEAL_KEYS = [OLD]
    assert verify()["exit"] == 2, "before they are sealed"
    with caplog.at_level(logging.WARNING):
        seal()
    assert "not checked yet" in caplog.text
    assert not AuditLog.objects.filter(code="ROW_MAC").exists()
    settings.AUDIT_SEAL_KEYS = [NEW, OLD]
    assert verify()["exit"] == 3, "and checked once the key is here"


def test_a_row_changed_under_its_second_mac_shows(settings: Any) -> None:
    settings.AUDIT_SEAL_KEYS = [NEW, OLD]
    ids = make_rows(2)
    tamper(f"UPDATE audit_log SET actor_id = 'evil' WHERE id = {ids[0]}")
    settings.AUDIT_SEAL_KEYS = [OLD]
    seal()
    assert verify()["first_row"] == ids[0]


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_wall_clock_that_jumps_gives_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = make_apart(2)
    [row] = AuditLog.objects.filter(pk=ids[0]).values()
    tamper(f"DELETE FROM audit_log WHERE id = {ids[0]}")
    seal()
    monkeypatch.setattr(sealing, "now", lambda: now() + timedelta(days=3))
    for starting_anew in (False, True):
        if starting_anew:
            forget_chain()
        seal()
        make_sealed(1)
    monkeypatch.setattr(sealing, "now", now)
    AuditLog.objects.bulk_create([AuditLog(**row)])  # commits late
    forget_chain()
    seal()
    assert ids[0] in [one for found in AuditSeal.objects.all() for one in each(found.members)]
    assert verify()["exit"] == 3


@pytest.mark.mariadb
def test_an_id_that_an_open_transaction_holds_is_not_given_up(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.AUDIT_GAP_SECONDS = 0
    inserted, go = threading.Event(), threading.Event()
    late: list[int] = []

    def slow() -> None:
        try:
            with transaction.atomic():
                late.append(make_row(code="SLOW").pk)
                inserted.set()
                go.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    inserted.wait(30)
    make_apart(1)
    ahead = 0.0
    monkeypatch.setattr(chain, "elapsed", lambda: ahead)
    for _ in range(3):
        seal()
        ahead += 90_000
    assert not any(holds(one.closed, late[0]) for one in AuditSeal.objects.all())
    go.set()
    thread.join()
    seal()
    assert late[0] in [one for found in AuditSeal.objects.all() for one in each(found.members)]
    assert verify()["exit"] == 3


# --- doctor ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE audit_seal SET total = 99 WHERE number = 1",
        "DELETE FROM audit_seal WHERE number = 1",
        "DELETE FROM audit_seal WHERE number >= 2",
        "DELETE FROM audit_seal",
        "UPDATE audit_seal SET members = '{{' WHERE number = 2",
    ],
)
def test_doctor_fails_for_a_chain_that_was_tampered_with(damage: str) -> None:
    from config.checks import audit_chain

    make_sealed(1, 1, 1)
    assert audit_chain().ok
    tamper(damage)
    found = audit_chain()
    assert not found.ok
    assert "verify_audit" in found.advice
