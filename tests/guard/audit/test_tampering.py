"""Whoever owns the database and not the key: each way of changing the log shows, and the first broken row is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from guard.audit.models import AuditLog, AuditSeal
from tests.guard.audit.sealing import (
    anchor,
    dump,
    first,
    forget_head,
    make_apart,
    make_rows,
    make_sealed,
    put_back,
    seal,
    tamper,
    verify,
)  # fmt: skip

pytestmark = pytest.mark.django_db(transaction=True)


def swap(one: int, other: int) -> list[str]:
    """Exchanges the contents of two rows, own macs and all."""
    columns = [field.column for field in AuditLog._meta.concrete_fields if field.column not in ("id",)]
    sets = ", ".join(f"{name} = (SELECT {name} FROM swapped WHERE swapped.id = %d)" for name in columns)
    return [
        "CREATE TABLE swapped AS SELECT * FROM audit_log",
        f"UPDATE audit_log SET {sets.replace('%d', str(other))} WHERE id = {one}",
        f"UPDATE audit_log SET {sets.replace('%d', str(one))} WHERE id = {other}",
        "DROP TABLE swapped",
    ]


def insert_copy(of: int, new_id: int) -> str:
    columns = [field.column for field in AuditLog._meta.concrete_fields if field.column != "id"]
    return (
        f"INSERT INTO audit_log (id, {', '.join(columns)}) "
        f"SELECT {new_id}, {', '.join(columns)} FROM audit_log WHERE id = {of}"
    )


def test_a_log_that_nobody_touched_is_whole(tmp_path: Path) -> None:
    make_sealed(3, 1, 4)
    told = verify()
    assert (told["exit"], told["result"], told["rows"], told["seals"]) == (3, "whole_unanchored", 8, 4)
    anchor(tmp_path / "anchors")  # seals the row of that verification first
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], told["anchored"], told["rows_after_anchor"]) == (0, 4, 0)
    rows = list(AuditLog.objects.filter(event_type="audit_verify").order_by("id").values_list("decision", "code"))
    assert rows == [("passed", "WHOLE_UNANCHORED"), ("passed", "WHOLE")]


@pytest.mark.parametrize("column", [
    "tenant", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "input_summary", "customer", "mac",
])  # fmt: skip
def test_an_edit_of_any_column(column: str) -> None:
    ids = make_sealed(2, 3)
    value = {"at": "'2020-01-01 00:00:00'", "risk_score": "99", "input_summary": """'{"code": "NOT_OWNER"}'"""}
    tamper(f"UPDATE audit_log SET {column} = {value.get(column, chr(39) + 'x' + chr(39))} WHERE id = {ids[3]}")
    told = verify()
    assert (told["exit"], first(told), told["first_row"], told["found"]) == (1, (ids[3], 2), ids[3], 1)
    assert "not as it was sealed" in told["findings"][0]["what"]
    assert AuditLog.objects.filter(event_type="audit_verify", decision="failed", object_id=ids[3]).count() == 1


def test_an_edit_that_leaves_the_meaning_of_its_json_is_an_edit() -> None:
    ids = make_sealed(2)
    tamper(f"UPDATE audit_log SET input_summary = REPLACE(input_summary, ',', ', ') WHERE id = {ids[0]}")
    assert first(verify()) == (ids[0], 1)


def test_a_row_that_is_no_json_any_more_stops_nothing() -> None:
    ids = make_sealed(3)
    tamper(f"UPDATE audit_log SET input_summary = '{{broken' WHERE id = {ids[1]}")
    told = verify()
    assert (told["exit"], first(told), told["rows"]) == (1, (ids[1], 1), 3)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_deleted_row(place: int) -> None:
    ids = make_sealed(2, 3)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[place]}")
    told = verify()
    assert (told["exit"], first(told), told["found"]) == (1, (ids[place], 1 if place < 2 else 2), 1)
    assert "missing" in told["findings"][0]["what"]


def test_the_whole_log_deleted() -> None:
    make_sealed(2, 3)
    tamper("DELETE FROM audit_log")
    told = verify()
    assert (told["exit"], told["found"]) == (1, 5)


def test_an_inserted_row_in_the_middle_before_the_beginning_and_in_a_place_given_up(settings: Any) -> None:
    ids = make_sealed(2)
    tamper(f"DELETE FROM audit_log WHERE id = {make_apart(1)[0]}")  # an id that comes to nothing, as after a rollback
    settings.AUDIT_GAP_SECONDS = -1
    make_sealed(2)
    from guard.audit.sealing import forget_chain

    forget_chain()  # looks at what is open again, at once
    assert seal().seals == 1
    assert AuditSeal.objects.latest("number").closed[-1] == [ids[1] + 1, ids[1] + 1]
    before = verify()
    assert before["exit"] == 3
    tamper(insert_copy(ids[0], ids[1] + 1), insert_copy(ids[0], -5))
    told = verify()
    assert told["exit"] == 1
    assert {finding["row"] for finding in told["findings"]} == {-5, ids[1] + 1}
    assert told["first_row"] == -5


def test_a_row_put_under_an_id_that_was_never_missing() -> None:
    """The row with that id is replaced: gone and new at once."""
    ids = make_sealed(3)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[1]}", insert_copy(ids[0], ids[1]))
    assert first(verify()) == (ids[1], 1)


def test_reordered_and_swapped_rows() -> None:
    ids = make_sealed(3, 2)
    tamper(*swap(ids[0], ids[1]))
    told = verify()
    assert {finding["row"] for finding in told["findings"]} == {ids[0], ids[1]}
    tamper(*swap(ids[0], ids[1]))
    assert verify()["exit"] == 3, "put right again"
    tamper(*swap(ids[0], ids[4]))
    assert {(finding["row"], finding["seal"]) for finding in verify()["findings"]} == {(ids[0], 1), (ids[4], 2)}


def test_a_truncated_tail_of_rows_alone() -> None:
    ids = make_sealed(2, 3)
    tamper(f"DELETE FROM audit_log WHERE id >= {ids[3]}")
    assert verify()["first_row"] == ids[3]


def test_a_truncated_tail_with_its_seals_shows_against_an_anchor(tmp_path: Path) -> None:
    ids = make_sealed(2, 3)
    anchor(tmp_path / "anchors")
    tamper(f"DELETE FROM audit_log WHERE id >= {ids[2]}", "DELETE FROM audit_seal WHERE number >= 2")
    assert verify()["exit"] == 1, "this machine remembers the head"
    forget_head()
    tamper("DELETE FROM audit_log WHERE event_type = 'audit_verify'")
    assert verify()["exit"] == 3, "without an anchor or a memory nobody can know, and that is said"
    tamper("DELETE FROM audit_log WHERE event_type = 'audit_verify'")
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], first(told)) == (1, (None, 2))
    assert "cut off" in told["findings"][0]["what"]


def test_seals_alone_removed_and_made_again_by_the_sealer_show_against_an_anchor(tmp_path: Path) -> None:
    ids = make_sealed(2, 3)
    anchor(tmp_path / "anchors")
    tamper(f"UPDATE audit_log SET code = 'X', mac = '' WHERE id = {ids[4]}", "DELETE FROM audit_seal")
    from guard.audit.sealing import forget_chain

    forget_chain()
    seal()
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], told["first_row"]) == (1, ids[4])
    assert "seals 0 to 2 are missing" in told["findings"][0]["what"]
    assert "anchored on" in told["findings"][-1]["what"] + told["findings"][1]["what"]


def test_rollback_to_an_older_copy_shows_against_an_anchor_also_when_it_went_on(tmp_path: Path) -> None:
    make_sealed(2)
    older = dump()
    make_sealed(3, 1)
    anchor(tmp_path / "anchors")
    put_back(older)
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], first(told)) == (1, (None, 3))
    forget_head()
    make_sealed(1, 1, 1, 1)  # by now the chain is longer than the anchored one
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], first(told)) == (1, (None, 3))
    assert "another seal than the one anchored" in told["findings"][0]["what"]
    with pytest.raises(SystemExit) as refused:
        anchor(tmp_path / "anchors")
    assert refused.value.code == 1, "no new anchor covers the evidence"
    assert len((tmp_path / "anchors").read_text().splitlines()) == 1


@pytest.mark.parametrize(("column", "value"), [
    ("at", "'2020-01-01 00:00:00'"), ("from_id", "1"), ("head_id", "99"), ("count", "1"), ("total", "9"),
    ("members", "'[[1,1]]'"), ("members", "'{broken'"), ("members", "'[[1,\"x\"]]'"), ("opened", "'[[1,1]]'"),
    ("closed", "'[[1,1]]'"), ("oldest_open", "77"), ("adopted", "99"), ("digest", "'00'"), ("leaves", "'AAAA'"),
    ("previous_mac", "'00'"), ("key_id", "'none'"), ("mac", "'00'"),
])  # fmt: skip
def test_an_edit_of_any_column_of_a_seal(column: str, value: str) -> None:
    make_sealed(2, 2, 2)
    tamper(f"UPDATE audit_seal SET {column} = {value} WHERE number = 2")
    told = verify()
    assert (told["exit"], first(told)) == (1, (None, 2))
    if column == "key_id":
        assert (told["unknown_keys"], told["unchecked"]) == (["none"], 0)
    else:
        assert told["unchecked"] == 2, "the rows of the others are still compared"
    assert told["rows"] >= 4


def test_a_removed_a_replaced_and_a_moved_seal() -> None:
    make_sealed(2, 2, 2)
    good = dump()
    tamper("DELETE FROM audit_seal WHERE number = 2")
    told = verify()
    assert (told["exit"], first(told)) == (1, (None, 2))
    put_back(good)
    columns = ", ".join(field.column for field in AuditSeal._meta.concrete_fields if field.column != "number")
    tamper(
        "DELETE FROM audit_seal WHERE number = 2",
        f"INSERT INTO audit_seal (number, {columns}) SELECT 2, {columns} FROM audit_seal WHERE number = 1",
    )
    assert first(verify()) == (None, 2)


def test_a_seal_of_another_history_does_not_fit_the_chain() -> None:
    """The same key made it, over other rows, in a copy of the database: right by itself, and wrong here."""
    make_sealed(1)
    fork = dump()
    make_sealed(1, 1)
    one = dump()
    put_back(fork)
    forget_head()
    make_sealed(1, 1)
    other = dump()
    put_back((one[0], [*one[1][:2], other[1][2], one[1][3]]))
    told = verify()
    assert told["exit"] == 1
    assert {finding["seal"] for finding in told["findings"]} >= {3}


def test_a_seal_over_the_same_rows_out_of_another_chain_does_not_fit() -> None:
    """By itself it is right in every word; only the seal before it is another."""
    make_sealed(1, 1, 1)
    rows, seals = dump()
    put_back((rows[:2], seals[:2]))
    forget_head()
    seal()
    AuditLog.objects.bulk_create([AuditLog(**rows[2])])
    seal()
    put_back((rows, [*seals[:3], dump()[1][3]]))
    forget_head()
    told = verify()
    assert (told["exit"], told["found"], first(told)) == (1, 1, (None, 3))
    assert "does not follow" in told["findings"][0]["what"]


def test_an_edit_before_the_row_was_sealed_shows_once_it_is() -> None:
    ids = make_rows(3)
    tamper(f"UPDATE audit_log SET decision = 'x' WHERE id = {ids[1]}")
    assert verify()["first_row"] == ids[1], "even before"
    seal()
    told = verify()
    assert (told["exit"], first(told)) == (1, (ids[1], 1))
    assert "before it was sealed" in told["findings"][0]["what"]
    alarm = AuditLog.objects.get(code="ROW_MAC")
    assert (alarm.decision, alarm.object_id) == ("failed", str(ids[1]))


def test_a_row_written_past_the_door_shows() -> None:
    """Whoever may INSERT and has no key: at the end of the log, where nothing is sealed yet."""
    [real] = make_sealed(1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_log (tenant, at, event_type, decision, actor_type, actor_id, on_behalf_of, agent, "
            "object_type, object_id, code, trace_id, input_summary) VALUES ('default', '2026-01-01 00:00:00', "
            "'authz', 'forbidden', 'agent', 'forged', '', '', '', '', '', '', '{}')"
        )
    assert verify()["first_row"] == real + 1
    seal()
    assert first(verify()) == (real + 1, 2)


def test_a_row_copied_whole_with_its_mac_shows() -> None:
    ids = make_sealed(3)
    tamper(insert_copy(ids[0], ids[2] + 1))
    assert verify()["first_row"] == ids[2] + 1, "even before it is sealed"
    seal()
    told = verify()
    assert (told["exit"], first(told)) == (1, (ids[2] + 1, 2))
    assert f"copy of row {ids[0]}" in told["findings"][0]["what"]


def test_an_edit_of_a_late_row_before_a_seal_took_it() -> None:
    """Sealing has passed its id; the row came late and was changed before the next seal."""
    [before, late, after] = make_rows(3)
    [row] = list(AuditLog.objects.filter(pk=late).values())
    tamper(f"DELETE FROM audit_log WHERE id = {late}")
    seal()
    AuditLog.objects.bulk_create([AuditLog(**{**row, "code": "FORGED"})])  # comes now, under the missing id
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, late)
    assert (before, after) == (late - 1, late + 1)


# --- exports -----------------------------------------------------------------------------------------------------


def make_export(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    call_command("audit_export", path, by="an", json=True)
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines))


def test_an_export_proves_itself_without_the_database(tmp_path: Path, django_assert_num_queries: Any) -> None:
    make_sealed(3, 2)
    anchor(tmp_path / "anchors")
    path = make_export(tmp_path)
    with django_assert_num_queries(0):
        told = verify(export=path, anchor=tmp_path / "anchors")
    assert (told["exit"], told["rows"], told["recorded"]) == (0, 6, None)
    assert lines_of(path)[-3]["row"][3] == "evidence_exported", "the export's own row is in it"
    assert path.stat().st_mode & 0o077 == 0


def test_the_keys_alone_are_needed(tmp_path: Path, settings: Any) -> None:
    make_sealed(2)
    path = make_export(tmp_path)
    from guard.audit import sealkeys

    ((key_id, key),) = sealkeys.ring().items()
    settings.SECRET_KEY = "another machine's"
    assert verify(export=path)["exit"] == 2
    (tmp_path / "keys").write_text(f"{key_id}:{key.hex()}\n")
    assert verify(export=path, keys=tmp_path / "keys")["exit"] == 3


@pytest.mark.parametrize(
    "change",
    ["edit", "delete", "insert", "swap", "reorder", "cut", "cut_whole", "no_seal", "seal", "garbage", "no_end", "end"],
)
def test_a_changed_export(change: str, tmp_path: Path) -> None:
    make_sealed(3, 2)
    path = make_export(tmp_path)
    header, _origin, *rest = lines_of(path)
    lines = [header, *rest]  # header, 3 rows, seal, 2 rows, seal, row, seal, end
    if change == "edit":
        lines[1]["row"][6] = "someone"
    elif change == "delete":
        del lines[2]
    elif change == "insert":
        lines.insert(2, {**lines[2], "row": [*lines[2]["row"]]})
    elif change == "swap":
        lines[1]["row"][1:], lines[2]["row"][1:] = lines[2]["row"][1:], lines[1]["row"][1:]
    elif change == "reorder":
        lines[1], lines[2] = lines[2], lines[1]
    elif change == "cut":
        del lines[5:]
    elif change == "cut_whole":
        del lines[5:-1]
    elif change == "no_seal":
        del lines[4]
    elif change == "seal":
        lines[4]["total"] = 7
    elif change == "end":
        lines[-1]["head"] = 99
    elif change == "no_end":
        del lines[-1]
    write_lines(path, [header, _origin, *lines[1:]])
    if change == "garbage":
        path.write_text(path.read_text().replace('{"kind":"seal"', '{"kind":"se', 1))
    told = verify(export=path)
    assert told["exit"] == 1, told


def test_what_is_no_export_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"kind": "header", "format": "cats"}\n')
    assert verify(export=tmp_path / "other")["exit"] == 2
    assert verify(export=tmp_path / "absent")["exit"] == 2
    (tmp_path / "empty").write_text("")
    assert verify(export=tmp_path / "empty")["exit"] == 2
