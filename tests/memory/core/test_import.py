"""import_core: real files, bad rows, repeats, corrections."""

from __future__ import annotations

import csv
import json
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from guard.audit.models import AuditLog
from memory.core.importer import MAX_ERRORS_KEPT, import_directory
from memory.core.models import (
    ALWAYS,
    CoreAssessment,
    CoreAssignment,
    CoreChange,
    CoreCustomer,
    CorePosition,
    CoreProduct,
    CoreTrade,
)
from tests.memory.core.build import (
    ASSESSMENT,
    ASSIGNMENT,
    CUSTOMER,
    POSITION,
    PRODUCT,
    TRADE,
    a_small_core,
    load,
    write,
)

pytestmark = pytest.mark.django_db


def changed_customers() -> set[str]:
    return set(CoreChange.objects.values_list("customer_id", flat=True))


def forget_changes() -> None:
    CoreChange.objects.all().delete()


def command(directory: Path, *options: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    code = 0
    try:
        call_command("import_core", str(directory), *options, stdout=out, stderr=err)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    return code, out.getvalue(), err.getvalue()


def test_every_cell_arrives_exactly_as_given(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    trade = CoreTrade.objects.get()
    assert trade.traded_at == datetime(2026, 6, 15, 4, 0, 0, 123456, tzinfo=UTC)
    assert (trade.amount, trade.price, trade.fx_usd) == (
        Decimal(1000),
        Decimal("1.2345"),
        Decimal("0.1402524544179523"),
    )
    assert (trade.fee, trade.solicited, trade.cross_border, trade.plan_id) == (None, None, None, "")
    assert str(trade.amount) == "1000"
    customer, product = CoreCustomer.objects.get(), CoreProduct.objects.get()
    assert (customer.name, customer.valid_from, customer.birth_date) == ("王芳", ALWAYS, None)
    assert (product.risk_level, product.is_cash_like, product.is_complex) == (5, False, None)
    assert CoreAssessment.objects.get().c_level == 3
    assert CoreAssignment.objects.get().valid_to is None
    assert CorePosition.objects.get().as_of == date(2026, 5, 31)


@pytest.mark.parametrize(
    "amount", ["0", "0.1", "100000000000000.01", "1234567890123456789012345678.12345678901234567891", "1e3", "007.50"]
)
def test_amounts_keep_every_digit(tmp_path: Path, amount: str) -> None:
    assert load(tmp_path, trades=[{**TRADE, "amount": amount}]).bad == 0
    assert CoreTrade.objects.get().amount == Decimal(amount)
    assert load(tmp_path, trades=[{**TRADE, "amount": amount}]).files[0].same == 1


def test_a_repeat_changes_nothing_and_marks_nobody(tmp_path: Path) -> None:
    first = a_small_core(tmp_path)
    assert first.written == 6
    assert changed_customers() == {"c1"}
    forget_changes()
    second = import_directory(tenant="default", directory=tmp_path)
    assert (second.written, [file.same for file in second.files]) == (0, [1] * 6)
    assert changed_customers() == set()


def test_a_file_with_a_byte_order_mark_quotes_and_other_line_ends(tmp_path: Path) -> None:
    text = 'customer_id,name,kind\r\nc1,"王, ""小""\n芳",natural\r\n\r\nc2,,\r\n'
    (tmp_path / "customers.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    report = import_directory(tenant="default", directory=tmp_path)
    assert (report.files[0].created, report.bad) == (2, 0)
    assert CoreCustomer.objects.get(customer_id="c1").name == '王, "小"\n芳'


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"trade_id": ""}, "trade_id is empty"),
        ({"trade_id": "a:b"}, "trade_id 'a:b' is not an id"),
        ({"customer_id": " c1"}, "customer_id ' c1' is not an id"),
        ({"customer_id": "x" * 65}, "is not an id"),
        ({"version": "one"}, "version 'one' is not a whole number"),
        ({"trade_type": "Buy"}, "trade_type 'Buy' is not one of buy, sell"),
        ({"status": "done"}, "status 'done' is not one of executed, cancelled, reversed"),
        ({"traded_at": "2026-06-15T12:00:00"}, "traded_at '2026-06-15T12:00:00' has no time zone"),
        ({"traded_at": "2026-06-15"}, "is not an RFC 3339 time"),
        ({"traded_at": "2026-02-30T12:00:00Z"}, "is not a time of the calendar"),
        ({"traded_at": "2026-06-15T24:00:01Z"}, "is not a time of the calendar"),
        ({"traded_at": "0001-01-01T00:00:00Z"}, "lies outside the years"),
        ({"amount": "-1"}, "amount '-1' is negative"),
        ({"amount": "NaN"}, "amount 'NaN' is not a number"),
        ({"amount": "Infinity"}, "is not a number"),
        ({"amount": "1 000"}, "is not a number"),
        ({"amount": "１２"}, "is not a number"),
        ({"amount": "0." + "1" * 21}, "has more than 20 decimals"),
        ({"amount": "1" * 29}, "has more than 28 digits before the point"),
        ({"amount": "1e999"}, "has more than 28 digits"),
        ({"fx_cny": "0"}, "fx_cny '0' is not a positive rate"),
        ({"currency": "yuan"}, "currency 'yuan' is not a currency code"),
        ({"solicited": "yes"}, "solicited 'yes' is not true, false or empty"),
        ({"amount": "x", "version": ""}, "version is empty; amount 'x' is not a number"),
    ],
)
def test_a_faulty_row_is_named_with_file_line_and_reason_and_the_rest_goes_on(
    tmp_path: Path, cells: dict[str, str], reason: str
) -> None:
    report = load(tmp_path, trades=[{**TRADE, "trade_id": "t0"}, {**TRADE, **cells}, {**TRADE, "trade_id": "t2"}])
    assert reason in str(report.files[0].errors[0])
    assert str(report.files[0].errors[0]).startswith("trades.csv:3: ")
    assert report.bad == 1
    assert set(CoreTrade.objects.values_list("trade_id", flat=True)) == {"t0", "t2"}


def test_rows_with_too_many_or_too_few_fields_and_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_bytes(b"customer_id,name\nc1,a\nc2\nc3,b,c\nc4,\xff\xfe\nc5,\xe7\x8e\x8b\n")
    report = import_directory(tenant="default", directory=tmp_path)
    assert [(error.line, error.reason) for error in report.files[0].errors] == [
        (3, "has 1 fields, the header has 2"),
        (4, "has 3 fields, the header has 2"),
        (5, "name is not UTF-8"),
    ]
    assert sorted(CoreCustomer.objects.values_list("customer_id", "name")) == [("c1", "a"), ("c5", "王")]


def test_a_header_without_the_needed_columns_and_one_with_unknown_ones(tmp_path: Path) -> None:
    (tmp_path / "products.csv").write_text("product_id,colour\np1,red\n")
    (tmp_path / "customers.csv").write_text("customer_id,colour\nc1,red\n")
    report = import_directory(tenant="default", directory=tmp_path)
    customers, products = report.files
    assert (customers.unknown_columns, customers.created) == (["colour"], 1)
    assert (products.errors[0].line, products.created) == (1, 0)
    assert "lacks risk_level" in products.errors[0].reason


def test_optional_columns_may_be_absent(tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text(
        "trade_id,version,customer_id,trade_type,traded_at,amount,status\nt1,1,c1,buy,2026-06-15T12:00:00Z,5,executed\n"
    )
    assert import_directory(tenant="default", directory=tmp_path).bad == 0
    trade = CoreTrade.objects.get()
    assert (trade.product_id, trade.price, trade.fx_cny, trade.solicited, trade.currency) == ("", None, None, None, "")


def test_two_rows_of_one_key_that_contradict_each_other(tmp_path: Path) -> None:
    report = load(tmp_path, trades=[TRADE, TRADE, {**TRADE, "amount": "2"}])
    file = report.files[0]
    assert (file.created, file.same, file.bad) == (1, 1, 1)
    assert file.errors[0].reason == "contradicts line 2: same trade_id, version, other values"
    assert CoreTrade.objects.get().amount == 1000


def test_ids_are_compared_byte_by_byte(tmp_path: Path) -> None:
    report = load(tmp_path, customers=[{"customer_id": "alice"}, {"customer_id": "Alice"}, {"customer_id": "ALICE"}])
    assert report.files[0].created == 3


# --- what marks whom --------------------------------------------------------------------------------------------------


def test_each_kind_of_change_marks_the_customer_and_assignments_mark_nobody(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    for change in (
        {"customers": [{**CUSTOMER, "investor_type": "professional"}]},
        {"assessments": [{**ASSESSMENT, "c_level": "C4"}]},
        {"positions": [{**POSITION, "market_value": "1000.51"}]},
        {"trades": [{**TRADE, "version": "2", "status": "cancelled"}]},
    ):
        forget_changes()
        load(tmp_path / "more", **change)
        assert changed_customers() == {"c1"}, change
    forget_changes()
    load(tmp_path / "assigned", assignments=[{**ASSIGNMENT, "valid_to": "2026-12-01T00:00:00Z"}])
    assert changed_customers() == set()
    assert CoreAssignment.objects.get().valid_to is not None


def test_a_changed_product_marks_whoever_trades_or_holds_it(tmp_path: Path) -> None:
    a_small_core(
        tmp_path,
        trades=[TRADE, {**TRADE, "trade_id": "t2", "customer_id": "c2", "product_id": "p1"}],
        positions=[{**POSITION, "customer_id": "c3"}, {**POSITION, "customer_id": "c4", "product_id": "p1"}],
    )
    forget_changes()
    load(tmp_path / "more", products=[{**PRODUCT, "risk_level": "R4"}])
    assert changed_customers() == {"c1", "c3"}


def test_a_trade_corrected_to_another_customer_marks_both(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    forget_changes()
    load(tmp_path / "more", trades=[{**TRADE, "version": "2", "customer_id": "c2"}])
    assert changed_customers() == {"c1", "c2"}
    assert CoreTrade.objects.count() == 2


def test_tenants_do_not_see_each_others_rows(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    assert import_directory(tenant="other", directory=tmp_path).written == 6
    assert CoreTrade.objects.filter(tenant="other").count() == 1
    assert set(CoreChange.objects.values_list("tenant", "customer_id")) == {("default", "c1"), ("other", "c1")}


def test_batches_split_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.core.importer.BATCH_ROWS", 3)
    trades = [{**TRADE, "trade_id": f"t{number}"} for number in range(10)]
    assert load(tmp_path, trades=trades).files[0].created == 10
    trades[7]["amount"] = "5"
    report = load(tmp_path, trades=trades).files[0]
    assert (report.same, report.changed, report.rows) == (9, 1, 10)


# --- the command ------------------------------------------------------------------------------------------------------


def test_exit_codes_audit_rows_and_json(tmp_path: Path) -> None:
    directory = write(tmp_path, customers=[CUSTOMER], trades=[TRADE])
    assert command(directory)[0] == 0
    write(tmp_path, trades=[TRADE, {**TRADE, "trade_id": "bad id"}])
    code, out, err = command(directory)
    assert code == 1
    assert "trades.csv:3: trade_id 'bad id' is not an id" in err
    code, out, _err = command(directory, "--json")
    assert json.loads(out)["files"][1]["errors"][0]["line"] == 3
    rows = AuditLog.objects.filter(event_type="data_import").order_by("pk")
    assert [row.decision for row in rows] == ["completed", "partial", "partial"]
    assert rows[0].input_summary["trades.csv"] == {"created": 1, "changed": 0, "same": 0, "bad": 0}


@pytest.mark.parametrize("make", [False, True])
def test_nothing_to_import_is_exit_code_2(tmp_path: Path, make: bool) -> None:
    directory = tmp_path / "core"
    if make:
        directory.mkdir()
    code, _out, err = command(directory)
    assert code == 2
    assert ("has none of customers.csv" if make else "is not a directory") in err


def test_a_dry_run_reports_and_writes_nothing(tmp_path: Path) -> None:
    code, out, _err = command(write(tmp_path, trades=[TRADE]), "--dry-run")
    assert code == 0
    assert "1 new" in out
    assert not CoreTrade.objects.exists()
    assert not CoreChange.objects.exists()
    assert not AuditLog.objects.filter(event_type="data_import").exists()


def test_an_import_that_dies_is_audited_as_failed_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory.core import importer

    def dies(**_: Any) -> int:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(importer, "mark", dies)
        with pytest.raises(RuntimeError):
            a_small_core(tmp_path)
    # Facts and marks go together: what could not be marked is not there.
    assert not CoreCustomer.objects.exists()
    assert AuditLog.objects.get(event_type="data_import").decision == "failed"
    assert import_directory(tenant="default", directory=tmp_path).written == 6


def test_an_external_core_is_read_only(tmp_path: Path, settings: Any) -> None:
    settings.CORE_IS_EXTERNAL = True
    code, _out, err = command(write(tmp_path, trades=[TRADE]))
    assert code == 2
    assert "CORE_DATABASE_URL is set" in err


@pytest.mark.django_db(transaction=True)
def test_two_imports_of_one_directory_at_once_end_as_one(tmp_path: Path) -> None:
    write(
        tmp_path, customers=[CUSTOMER], products=[PRODUCT],
        trades=[{**TRADE, "trade_id": f"t{number}"} for number in range(300)],
    )  # fmt: skip
    reports: list[int] = []

    def work() -> None:
        try:
            reports.append(import_directory(tenant="default", directory=tmp_path).written)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reports)[-1] >= 1
    assert sum(reports) == 302
    assert CoreTrade.objects.count() == 300


def test_every_refused_row_is_written_to_a_file_however_many(tmp_path: Path) -> None:
    rows = [{**CUSTOMER, "customer_id": f"c{n}", "birth_date": "never"} for n in range(MAX_ERRORS_KEPT + 5)]
    directory = write(tmp_path / "core", customers=[*rows, {**CUSTOMER, "customer_id": "good"}])
    code, out, _err = command(directory, "--json", "--errors", str(tmp_path / "errors.csv"))
    [report] = json.loads(out)["files"]
    assert (code, report["bad"], report["created"], len(report["errors"])) == (1, len(rows), 1, MAX_ERRORS_KEPT)
    with (tmp_path / "errors.csv").open(encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file))
    assert [int(row["line"]) for row in told] == list(range(2, len(rows) + 2))
    assert told[-1]["file"] == "customers.csv"
    assert "birth_date" in told[-1]["reason"]


def test_a_report_that_cannot_be_written_stops_before_anything_is_imported(tmp_path: Path) -> None:
    directory = write(tmp_path / "core", customers=[CUSTOMER])
    with pytest.raises(CommandError, match="--errors"):
        call_command("import_core", str(directory), "--errors", str(tmp_path / "nowhere" / "errors.csv"))
    assert CoreCustomer.objects.count() == 0
