"""Plain helpers: a directory of CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory.core.columns import FILES
from memory.core.importer import ImportReport, import_directory

COLUMNS = {spec.name: [column.name for column in spec.columns] for spec in FILES}

CUSTOMER = {"customer_id": "c1", "name": "王芳", "kind": "natural", "investor_type": "ordinary"}
PRODUCT = {"product_id": "p5", "issuer_id": "i1", "asset_class": "equity", "risk_level": "R5", "is_cash_like": "false"}
ASSESSMENT = {"customer_id": "c1", "c_level": "C3", "is_lowest": "false", "assessed_at": "2026-01-15T10:00:00+08:00"}
ASSIGNMENT = {"advisor_id": "a1", "customer_id": "c1", "valid_from": "2026-01-01T00:00:00+08:00"}
POSITION = {"customer_id": "c1", "product_id": "p5", "as_of": "2026-05-31", "market_value": "1000.50"}
TRADE = {
    "trade_id": "t1", "version": "1", "customer_id": "c1", "product_id": "p5", "advisor_id": "a1", "trade_type": "buy",
    "traded_at": "2026-06-15T12:00:00.123456+08:00", "amount": "1000.00", "currency": "CNY", "fx_cny": "1",
    "fx_usd": "0.1402524544179523", "price": "1.2345", "status": "executed", "channel": "online",
}  # fmt: skip

Row = dict[str, str]


def write(directory: Path, **files: list[Row]) -> Path:
    """`trades=[{...}]` becomes trades.csv with all columns."""
    directory.mkdir(exist_ok=True)
    for name, rows in files.items():
        columns = COLUMNS[f"{name}.csv"]
        lines = [",".join(columns)] + [",".join(row.get(column, "") for column in columns) for row in rows]
        (directory / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


def load(directory: Path, **files: list[Row]) -> ImportReport:
    """Writes the files and imports them into the default tenant."""
    return import_directory(tenant="default", directory=write(directory, **files))


def a_small_core(directory: Path, **more: Any) -> ImportReport:
    """One customer C3, one product R5, one trade in it."""
    files = {
        "customers": [CUSTOMER], "products": [PRODUCT], "assessments": [ASSESSMENT], "assignments": [ASSIGNMENT],
        "positions": [POSITION], "trades": [TRADE],
    }  # fmt: skip
    return load(directory, **{**files, **more})


def load_just_under(directory: Path) -> None:
    """Three purchases of 45,000 CNY in cash on three days: each just under RISK-003's limit of 50,000."""
    trades = [
        {**TRADE, "trade_id": f"t{n}", "amount": "45000", "settle_method": "cash", "price": "1",
         "traded_at": f"2026-06-1{n}T12:00:00+08:00"} for n in (5, 6, 7)
    ]  # fmt: skip
    load(directory, customers=[CUSTOMER], products=[{**PRODUCT, "risk_level": "R1"}],
         assessments=[ASSESSMENT], trades=trades)  # fmt: skip
