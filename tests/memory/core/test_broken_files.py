"""import_core with files broken as files: stray quotes, encodings, what is unreadable; and a database that fails."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from guard.audit.models import AuditLog
from memory.core import importer, reading
from memory.core.importer import import_directory
from memory.core.models import CoreChange, CoreCustomer, CoreTrade
from tests.memory.core.build import CUSTOMER, TRADE, load, write
from tests.memory.core.test_import import command

pytestmark = pytest.mark.django_db


def customers_csv(directory: Path, text: str) -> list[str]:
    """Imports a customers.csv of this text; its faults."""
    (directory / "customers.csv").write_text(text, encoding="utf-8", newline="")
    file = import_directory(tenant="default", directory=directory).files[0]
    assert file.rows == file.created + file.changed + file.same + file.bad
    return [str(error) for error in file.errors]


def names() -> dict[str, str]:
    return dict(CoreCustomer.objects.values_list("customer_id", "name"))


def trades_with(directory: Path, count: int, **broken: str) -> Path:
    """trades.csv of `count` rows whose tenth, on line 11, has these cells."""
    rows = [{**TRADE, "trade_id": f"t{number}"} for number in range(count)]
    rows[9] = {**rows[9], **broken}
    return write(directory, trades=rows)


# --- quotes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [40, 3000])
@pytest.mark.parametrize("column", ["trade_id", "product_id", "amount", "mismatch_confirm_id"])
def test_a_quote_that_is_not_closed_costs_its_own_row(tmp_path: Path, count: int, column: str) -> None:
    report = import_directory(
        tenant="default", directory=trades_with(tmp_path, count, **{column: '"' + TRADE.get(column, "")})
    )
    file = report.files[0]
    assert [str(error) for error in file.errors] == [
        f"trades.csv:11: the quote opened in {column} is not closed",
    ]
    assert (file.rows, file.created, file.bad) == (count, count - 1, 1)
    assert not CoreTrade.objects.filter(trade_id="t9").exists()


@pytest.mark.parametrize(
    ("text", "faults", "kept"),
    [
        # Another quoted field follows, at once and later.
        ('id,name,x\nc1,"A,\nc2,"B",\nc3,C,\n', [2], {"c2": "B", "c3": "C"}),
        ('id,name,x\nc1,"A,\nc2,B,\nc3,"C, D",\n', [2], {"c2": "B", "c3": "C, D"}),
        ('id,name,x\nc1,"A,\nc2,"",\nc3,"","n"\n', [2], {"c2": "", "c3": ""}),
        # A lone quote in each row: every second one would close the one before.
        ('id,name,x\nc1,",\nc2,",\nc3,",\nc4,D,\n', [2, 3, 4], {"c4": "D"}),
        ('id,name\nc1,"\nc2,"\nc3,C\n', [2, 3], {"c3": "C"}),
        ('id,name\nc1,"A\nc2,"B\nc3,C\n', [2, 3], {"c3": "C"}),
        # On the last line, with and without its end; in an id; in a line with too few fields.
        ('id,name\nc1,A\nc2,"B', [3], {"c1": "A"}),
        ('id,name\nc1,A\nc2,"B\n', [3], {"c1": "A"}),
        ('id,name\n"c1,A\nc2,B"\nc3,C\n', [2], {"c2": 'B"', "c3": "C"}),
        ('id,name,x\nc1,"A\nc2,B,\n', [2], {"c2": "B"}),
        # Line ends of Windows and of old Macs, blank lines.
        ('id,name\r\nc1,"A\r\n\r\nc2,B\r\n', [2], {"c2": "B"}),
        ('id,name\rc1,"A\rc2,B\r', [2], {"c2": "B"}),
    ],
)
def test_no_row_is_swallowed(tmp_path: Path, text: str, faults: list[int], kept: dict[str, str]) -> None:
    errors = customers_csv(tmp_path, text.replace("id", "customer_id", 1))
    assert [int(error.split(":")[1]) for error in errors] == faults
    assert all("quote opened in" in error and "is not closed" in error for error in errors)
    assert names() == kept


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ('"A\nB"', "A\nB"),
        ('"A\r\n\r\nB, Road 5"', "A\r\n\r\nB, Road 5"),
        ('"Say ""A"",\n""B"""', 'Say "A",\n"B"'),
        ('"\n"', ""),
        ('"A\n李, 王\nB"', "A\n李, 王\nB"),
        ('"A"B', "AB"),  # careless, on one line: read as ever
        ('A "B', 'A "B'),
    ],
)
def test_a_quoted_field_may_go_over_several_lines(tmp_path: Path, cell: str, name: str) -> None:
    faults = customers_csv(tmp_path, f"customer_id,name,kind\nc1,{cell},natural\nc2,bad kind,x\nc3,C,entity\n")
    assert [fault.partition("kind")[2][:4] for fault in faults] == [" 'x'"]
    assert int(faults[0].split(":")[1]) == 3 + cell.count("\n")
    assert names() == {"c1": name, "c3": "C"}


def test_many_broken_lines_take_linear_time_and_little_memory(tmp_path: Path) -> None:
    def seconds(count: int, line: str) -> float:
        path = tmp_path / "customers.csv"
        path.write_text("customer_id,name,x\n" + line * count)
        report = importer.FileReport("customers.csv")
        begun = time.process_time()
        assert not list(reading.file_rows(importer.FILES[0], path, report))
        assert (report.rows, report.bad) == (count, count)
        return time.process_time() - begun

    # Each line opens a quote that all the lines after it leave open: the worst that can be done to the reader.
    worst = 'a","c,d,e,f\n'
    seconds(200, worst)
    tracemalloc.start()
    small = seconds(1000, worst)
    large = seconds(8000, worst)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert large < 8 * small * 2.5
    assert peak < 8 * 2**20


def test_a_line_without_end_is_one_fault_and_does_not_fill_the_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    faults = customers_csv(tmp_path, "customer_id,name\nc1," + "x" * 5_000_000 + '\nc2,"' + "y\n" * 300_000 + "c3,C\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert faults[:2] == [
        "customers.csv:2: the line is longer than 131072 characters",
        "customers.csv:3: the quote opened in name is not closed",
    ]
    assert names() == {"c3": "C"}
    assert peak < 5_700_000 + 8 * 2**20  # the text that the test itself holds, and a little


# --- headers and encodings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        ("customer_id,name\nc1,A\n".encode("utf-16"), "the file is UTF-16, not UTF-8"),
        ("customer_id,name\nc1,A\n".encode("utf-16-be"), "the file is not UTF-8, probably UTF-16"),
        ("customer_id,name\nc1,A\n".encode("utf-32"), "the file is UTF-32, not UTF-8"),
        ("customer_id,姓名\nc1,王\n".encode("gbk"), "the header is not UTF-8, probably GBK"),
        (b"customer_id,\xff\nc1,A\n", "the header is not UTF-8"),
        (b'customer_id,"name\nc1,A\n', "a quote opened in the header is not closed"),
        (b"customer_id,a\x00\x1b[31m,a\x00\x1b[31m\nc1,A,A\n", "the header repeats a\\x00\\x1b[31m"),
        (b"\x00\x1b]0;x\x07,b\n", "the header lacks customer_id"),
    ],
)
def test_a_file_that_has_no_readable_header_is_exit_code_2(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "customers.csv").write_bytes(content)
    code, _out, err = command(tmp_path)
    assert code == 2
    assert f"customers.csv:1: {reason}; no row of this file was read\n" in err
    assert AuditLog.objects.get(event_type="data_import").decision == "failed"


def test_a_gbk_file_with_a_plain_header_costs_its_chinese_rows_each_a_fault_that_says_so(tmp_path: Path) -> None:
    text = "customer_id,name\nc1,王建国\nc2,李\nc3,Ann\n"
    (tmp_path / "customers.csv").write_bytes(text.encode("gbk"))
    code, _out, err = command(tmp_path)
    assert code == 1
    assert [line.split(": ", 1)[1] for line in err.splitlines() if "customers.csv:" in line] == [
        "name is not UTF-8, probably GBK"
    ] * 2
    assert names() == {"c3": "Ann"}


def test_names_of_unknown_columns_reach_no_terminal_raw(tmp_path: Path) -> None:
    strange = ["\x00\x1b[31mred\x9b", "\u202edlog", "姓名", "", "w" * 500, *(f"n{number}" for number in range(40))]
    (tmp_path / "customers.csv").write_text(",".join(["customer_id", *strange]) + "\nc1" + "," * len(strange) + "\n")
    code, _out, err = command(tmp_path)
    assert code == 0
    assert "left out: \\x00\\x1b[31mred\\x9b, \\u202edlog, 姓名, (no name), " + "w" * 60 + "…, n0" in err
    assert err.rstrip().endswith("and 25 more")
    out = command(tmp_path, "--json")[1]
    assert all(char.isprintable() for char in out.strip())
    assert json.loads(out)["files"][0]["unknown_columns"][0] == "\\x00\\x1b[31mred\\x9b"


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_what_is_no_file_is_named_and_the_others_go_in(tmp_path: Path) -> None:
    (tmp_path / "trades.csv").mkdir()
    (tmp_path / "products.csv").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "positions.csv")
    code, _out, err = command(tmp_path)
    assert code == 2
    assert "trades.csv:1: is a directory; nothing was read" in err
    assert "products.csv:1: cannot be read: No such file or directory; nothing was read" in err
    assert "positions.csv:1: is not a regular file; nothing was read" in err
    write(tmp_path, customers=[CUSTOMER])
    assert command(tmp_path)[0] == 1
    assert CoreCustomer.objects.count() == 1


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, trades=[TRADE])

    def closed(*_args: Any, **_options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)
    code, _out, err = command(tmp_path)
    assert code == 2
    assert "trades.csv:1: cannot be read: Permission denied; nothing was read" in err


def test_a_disk_that_fails_on_the_way_is_told_and_the_rows_before_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, trades=[{**TRADE, "trade_id": f"t{number}"} for number in range(10)])
    take = reading._Lines.take

    def fails(lines: Any) -> str:
        if lines.number == 6:
            raise reading._ReadError("Input/output error")
        return take(lines)

    monkeypatch.setattr(reading._Lines, "take", fails)
    code, _out, err = command(tmp_path)
    assert (code, CoreTrade.objects.count()) == (1, 5)
    assert "trades.csv:7: cannot be read from here on: Input/output error" in err


def test_only_refused_rows_is_exit_code_2_and_an_empty_table_is_not(tmp_path: Path) -> None:
    assert command(write(tmp_path, trades=[{**TRADE, "amount": "x"}]))[0] == 2
    assert command(write(tmp_path, trades=[]))[0] == 0


# --- the database fails on the way ------------------------------------------------------------------------------------


def fail_in_batch(monkeypatch: pytest.MonkeyPatch, failing: int, *, audit_too: bool = False) -> None:
    """Each batch has 3 rows; this one's transaction breaks at its end."""
    monkeypatch.setattr(importer, "BATCH_ROWS", 3)
    mark, calls = importer.mark, []

    def breaks(**options: Any) -> int:
        calls.append(1)
        if len(calls) == failing:
            raise OperationalError("database is locked")
        return mark(**options)

    def away(**_: Any) -> None:
        raise OperationalError("server has gone away")

    monkeypatch.setattr(importer, "mark", breaks)
    if audit_too:
        monkeypatch.setattr(importer, "observe", away)


def test_a_database_that_fails_on_the_way_leaves_whole_batches_and_says_what_went_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**TRADE, "trade_id": f"t{number}"} for number in range(10)]
    rows.insert(4, rows[3])  # a repeat of a row that the failing batch holds
    rows.insert(1, rows[0])
    write(tmp_path, trades=rows)
    with monkeypatch.context() as patch:
        fail_in_batch(patch, 2)
        report = importer.ImportReport()
        with pytest.raises(OperationalError, match="locked"):
            import_directory(tenant="default", directory=tmp_path, report=report)
    file = report.files[0]
    assert (file.rows, file.created, file.same, file.bad, file.left) == (8, 3, 1, 0, 4)
    assert (CoreTrade.objects.count(), CoreChange.objects.count()) == (3, 1)
    audit = AuditLog.objects.get(event_type="data_import")
    assert (audit.decision, audit.input_summary["trades.csv"]["created"]) == ("failed", 3)
    again = load(tmp_path).files[0]
    assert (again.created, again.same, again.left) == (7, 5, 0)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_tells_it_also_where_no_audit_row_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    from io import StringIO

    from django.core.management import call_command

    write(tmp_path, trades=[{**TRADE, "trade_id": f"t{number}"} for number in range(10)])
    fail_in_batch(monkeypatch, 3, audit_too=True)
    out, err = StringIO(), StringIO()
    with pytest.raises(OperationalError, match="locked"):  # not the audit row's error, which only follows from it
        call_command("import_core", str(tmp_path), *options, stdout=out, stderr=err)
    assert "stopped before the end" in err.getvalue()
    if options:
        said = json.loads(out.getvalue())
        assert (said["complete"], said["files"][0]["created"], said["files"][0]["left"]) == (False, 6, 3)
    else:
        assert "trades.csv: 9 rows, 6 new, 0 changed, 0 the same, 0 refused, 3 not in" in out.getvalue()
    assert CoreTrade.objects.count() == 6
