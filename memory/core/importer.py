"""The only writer of the core tables: CSV rows in, changed customers marked, in one transaction a batch.

1. A row is read by its file's columns; a faulty one is reported with file and line, and the rest goes on.
2. A batch takes the tenant's import lock, reads the rows it may replace, and sorts its own into new, changed, same.
3. New and changed rows are written and their customers marked in `core_change`, all in that transaction; a changed
   product marks whoever trades or holds it. Rows that are the same change nothing and mark nobody.
Nothing is deleted: a row that is missing from a later file stays.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.db import OperationalError, transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.audit.models import Decision, EventType
from guard.audit.services import record
from memory.core.columns import FILES, FileSpec, header_faults
from memory.core.models import (
    CoreAssessment,
    CoreChange,
    CoreCustomer,
    CoreImport,
    CorePosition,
    CoreProduct,
    CoreTrade,
    refuse_if_external,
)

BATCH_ROWS = 2000
MAX_ERRORS_KEPT = 1000  # a file of the wrong kind must not fill the memory with its errors; the count goes on
Progress = Callable[[str, int], None]  # file name, rows read since the last call
Result = TypeVar("Result")


@dataclass
class RowError:
    """Why one row stayed out."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass
class FileReport:
    """What became of one file's rows. rows = created + changed + same + bad."""

    file: str
    rows: int = 0
    created: int = 0
    changed: int = 0
    same: int = 0
    bad: int = 0
    unknown_columns: list[str] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)

    def fault(self, line: int, reason: str) -> None:
        self.bad += 1
        if len(self.errors) < MAX_ERRORS_KEPT:
            self.errors.append(RowError(self.file, line, reason))


@dataclass
class ImportReport:
    """What became of one import."""

    files: list[FileReport] = field(default_factory=list)
    dry_run: bool = False

    @property
    def bad(self) -> int:
        return sum(file.bad for file in self.files)

    @property
    def written(self) -> int:
        return sum(file.created + file.changed for file in self.files)

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "bad": self.bad,
            "files": [
                {
                    **{name: getattr(file, name) for name in ("file", "rows", "created", "changed", "same", "bad")},
                    "unknown_columns": file.unknown_columns,
                    "errors": [{"line": error.line, "reason": error.reason} for error in file.errors],
                }
                for file in self.files
            ],
        }


Rows = Iterable[tuple[int, dict[str, str]]]  # line number, cells by column


def import_directory(
    *, tenant: str, directory: Path, dry_run: bool = False, progress: Progress | None = None
) -> ImportReport:
    """Imports those of the six files that are in `directory`; one `data_import` audit row (none for a dry run).

    Errors: CORE_READ_ONLY; INVALID_ID for the tenant; NOT_FOUND when the directory or all six files are missing.
    """
    found = [(spec, directory / spec.name) for spec in FILES if (directory / spec.name).is_file()]
    if not found:
        what = "has none of " + ", ".join(spec.name for spec in FILES) if directory.is_dir() else "is not a directory"
        raise DomainError("NOT_FOUND", f"{directory} {what}")
    return _run(tenant, ((spec, path) for spec, path in found), dry_run, progress)


def import_tables(
    *, tenant: str, tables: dict[str, list[dict[str, str]]], progress: Progress | None = None
) -> ImportReport:
    """The same for rows that are in memory already: file name -> rows of cells as a CSV file would hold them."""
    return _run(tenant, ((spec, tables[spec.name]) for spec in FILES if spec.name in tables), False, progress)


def _run(
    tenant: str, sources: Iterable[tuple[FileSpec, Path | list[dict[str, str]]]], dry_run: bool, progress: Any
) -> ImportReport:
    refuse_if_external()
    check_id("tenant", tenant)
    report = ImportReport(dry_run=dry_run)
    try:
        for spec, source in sources:
            file = FileReport(spec.name)
            report.files.append(file)
            if isinstance(source, Path):
                with source.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
                    _import_rows(tenant, spec, _csv_rows(spec, stream, file), file, dry_run, progress)
            else:
                _import_rows(tenant, spec, enumerate(source, start=2), file, dry_run, progress)
    except BaseException:
        if not dry_run:
            _audit(tenant, Decision.FAILED, report)
        raise
    if not dry_run:
        _audit(tenant, Decision.PARTIAL if report.bad else Decision.COMPLETED, report)
    return report


def _audit(tenant: str, decision: Decision, report: ImportReport) -> None:
    record(
        tenant=tenant,
        event_type=EventType.DATA_IMPORT,
        decision=decision,
        actor_id="import_core",
        object_type="core",
        input_summary={
            file.file: {"created": file.created, "changed": file.changed, "same": file.same, "bad": file.bad}
            for file in report.files
        },
    )


# --- reading ----------------------------------------------------------------------------------------------------


def _csv_rows(spec: FileSpec, stream: Any, report: FileReport) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(stream)
    header = [name.strip() for name in next(reader, [])]
    missing, report.unknown_columns = header_faults(spec, header)
    repeated = sorted({name for name in header if header.count(name) > 1})
    if missing or repeated:
        trouble = f"the header lacks {', '.join(missing)}" if missing else f"the header repeats {', '.join(repeated)}"
        report.rows += 1
        report.fault(1, f"{trouble}; no row of this file was read")
        return
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            report.rows += 1
            report.fault(line, f"not CSV: {error}")
            continue
        if not cells:
            continue
        if len(cells) != len(header):
            report.rows += 1
            report.fault(line, f"has {len(cells)} fields, the header has {len(header)}")
            continue
        yield line, dict(zip(header, cells, strict=True))


def _import_rows(
    tenant: str, spec: FileSpec, rows: Rows, report: FileReport, dry_run: bool, progress: Progress | None
) -> None:
    seen: dict[tuple[Any, ...], tuple[int, int]] = {}
    batch: list[dict[str, Any]] = []
    for line, cells in rows:
        report.rows += 1
        try:
            row = _read(spec, cells)
        except ValueError as error:
            report.fault(line, str(error))
            continue
        key = tuple(row[name] for name in spec.key)
        content = hash(tuple(row.values()))
        first_line, first_content = seen.setdefault(key, (line, content))
        if first_line != line:
            if first_content == content:
                report.same += 1
            else:
                report.fault(line, f"contradicts line {first_line}: same {', '.join(spec.key)}, other values")
            continue
        batch.append(row)
        if len(batch) >= BATCH_ROWS:
            _store(tenant, spec, batch, report, dry_run, progress)
            batch = []
    if batch:
        _store(tenant, spec, batch, report, dry_run, progress)


def _read(spec: FileSpec, cells: dict[str, str]) -> dict[str, Any]:
    for name, text in cells.items():
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise ValueError(f"{name} is not UTF-8")
    return spec.read(cells)


# --- writing ----------------------------------------------------------------------------------------------------


def _store(
    tenant: str, spec: FileSpec, batch: Sequence[dict[str, Any]], report: FileReport, dry_run: bool, progress: Any
) -> None:
    if dry_run:
        created, changed, _old = _compare(tenant, spec, batch)
    else:
        created, changed = _retried(lambda: _write(tenant, spec, batch))
    report.created += len(created)
    report.changed += len(changed)
    report.same += len(batch) - len(created) - len(changed)
    if progress:
        progress(spec.name, len(batch))


def _write(
    tenant: str, spec: FileSpec, batch: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with transaction.atomic():
        _lock(tenant)
        created, changed, old = _compare(tenant, spec, batch)
        if created:
            spec.model._default_manager.bulk_create([spec.model(tenant=tenant, **row) for row in created], 500)
        if changed:
            names = [column.name for column in spec.columns if column.name not in spec.key]
            objects = [spec.model(tenant=tenant, **row) for row in changed]
            for target, row in zip(objects, changed, strict=True):
                target.pk = old[tuple(row[name] for name in spec.key)]["pk"]
            spec.model._default_manager.bulk_update(objects, names, batch_size=200)
        if spec.marks and (created or changed):
            mark(tenant=tenant, customer_ids=_touched(tenant, spec, [*created, *changed], old))
        if spec.model in (CoreCustomer, CoreAssessment) and (created or changed):
            customers = {row["customer_id"] for row in (*created, *changed)}
            for listener in _customer_listeners:
                listener(tenant, customers)
    return created, changed


_customer_listeners: list[Callable[[str, set[str]], None]] = []


def on_customers_changed(listener: Callable[[str, set[str]], None]) -> None:
    """Call `listener(tenant, customer_ids)` in the transaction that changes their rows or assessments."""
    _customer_listeners.append(listener)


def _lock(tenant: str) -> None:
    """One importer at a time in a tenant (see CoreImport)."""
    CoreImport.objects.get_or_create(tenant=tenant)
    CoreImport.objects.select_for_update().get(tenant=tenant)
    CoreImport.objects.filter(tenant=tenant).update(imported_at=now())


def _compare(
    tenant: str, spec: FileSpec, batch: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[tuple[Any, ...], dict[str, Any]]]:
    """(new rows, changed rows, the stored rows by key)."""
    names = [column.name for column in spec.columns]
    nearby = {f"{name}__in": {row[name] for row in batch} for name in spec.key}
    stored = spec.model._default_manager.filter(tenant=tenant, **nearby).values("pk", *names)
    old = {tuple(row[name] for name in spec.key): row for row in stored}
    created, changed = [], []
    for row in batch:
        known = old.get(tuple(row[name] for name in spec.key))
        if known is None:
            created.append(row)
        elif any(known[name] != row[name] for name in names):
            changed.append(row)
    return created, changed, old


def _touched(
    tenant: str, spec: FileSpec, rows: Sequence[dict[str, Any]], old: dict[tuple[Any, ...], dict[str, Any]]
) -> set[str]:
    if spec.model is CoreProduct:
        products = {row["product_id"] for row in rows}
        traders = CoreTrade.objects.filter(tenant=tenant, product_id__in=products)
        holders = CorePosition.objects.filter(tenant=tenant, product_id__in=products)
        return {
            *traders.values_list("customer_id", flat=True).distinct(),
            *holders.values_list("customer_id", flat=True).distinct(),
        }
    customers = {row["customer_id"] for row in rows}
    if spec.model is CoreTrade:
        # Another version may name another customer (a correction of whose trade it was): that one changes too.
        ids = {row["trade_id"] for row in rows}
        others = CoreTrade.objects.filter(tenant=tenant, trade_id__in=ids)
        customers.update(others.values_list("customer_id", flat=True).distinct())
        customers.update(row["customer_id"] for row in old.values() if row["trade_id"] in ids)
    return customers


def mark(*, tenant: str, customer_ids: Iterable[str], priority: int = 0) -> int:
    """Tells the scanner that these customers' facts changed; call it in the transaction of the change."""
    marks = [
        CoreChange(tenant=tenant, customer_id=customer_id, priority=priority)
        for customer_id in sorted(set(customer_ids))
    ]
    CoreChange.objects.bulk_create(marks, 500)
    return len(marks)


_RETRIED = {1205, 1213}  # lock wait timeout, deadlock


def _retried(work: Callable[[], Result], attempts: int = 5) -> Result:
    """`work()`, again where MySQL says that it lost a deadlock or waited too long for a lock."""
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except OperationalError as error:
            if attempt == attempts or not error.args or error.args[0] not in _RETRIED:
                raise
    raise AssertionError("unreachable")
