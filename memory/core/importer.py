"""The only writer of the core tables: CSV rows in, changed customers marked, in one transaction a batch.

1. A row is read by its file's columns; a faulty one is reported with file and line, and the rest goes on.
2. A batch takes the tenant's import lock, reads the rows it may replace, and sorts its own into new, changed, same.
3. New and changed rows are written and their customers marked in `core_change`, all in that transaction; a changed
   product marks whoever trades or holds it. Rows that are the same change nothing and mark nobody.
Nothing is deleted: a row that is missing from a later file stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.db import DatabaseError, OperationalError, connection, transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.audit.models import Decision, EventType
from guard.audit.services import observe
from memory.core.columns import FILES, FileSpec
from memory.core.marking import mark as mark
from memory.core.marking import tell
from memory.core.models import (
    CoreAssessment,
    CoreAssignment,
    CoreCustomer,
    CoreImport,
    CorePosition,
    CoreProduct,
    CoreTrade,
    refuse_if_external,
)
from memory.core.reading import file_rows, guess, listed, shown

BATCH_ROWS = 2000
MAX_ERRORS_KEPT = 1000  # a file of the wrong kind must not fill the memory with its errors; the count goes on
_COUNTS = ("file", "rows", "created", "changed", "same", "bad", "left")
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
    """What became of one file's rows. rows = created + changed + same + bad + left.

    created, changed, same: committed. left: read, but in no batch that was committed (0 unless the import stopped).
    """

    file: str
    rows: int = 0
    created: int = 0
    changed: int = 0
    same: int = 0
    bad: int = 0
    unknown_columns: list[str] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    tell: Callable[[RowError], None] | None = None

    @property
    def good(self) -> int:
        return self.created + self.changed + self.same

    @property
    def left(self) -> int:
        return self.rows - self.good - self.bad

    def fault(self, line: int, reason: str) -> None:
        self.bad += 1
        error = RowError(self.file, line, reason)
        if len(self.errors) < MAX_ERRORS_KEPT:
            self.errors.append(error)
        if self.tell is not None:
            self.tell(error)


@dataclass
class ImportReport:
    """What became of one import, or so far: it is filled while the import goes on. complete: it came to its end.

    tell: is given every faulty row as it is met; the report itself keeps the first MAX_ERRORS_KEPT of a file.
    """

    files: list[FileReport] = field(default_factory=list)
    dry_run: bool = False
    complete: bool = False
    tell: Callable[[RowError], None] | None = None

    @property
    def bad(self) -> int:
        return sum(file.bad for file in self.files)

    @property
    def written(self) -> int:
        return sum(file.created + file.changed for file in self.files)

    @property
    def nothing(self) -> bool:
        """Rows or files were refused, and not one row was good."""
        return self.bad > 0 and not any(file.good for file in self.files)

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "complete": self.complete,
            "bad": self.bad,
            "files": [
                {
                    **{name: getattr(file, name) for name in _COUNTS},
                    "unknown_columns": file.unknown_columns,
                    "errors": [{"line": error.line, "reason": error.reason} for error in file.errors],
                }
                for file in self.files
            ],
        }


Rows = Iterable[tuple[int, dict[str, str]]]  # line number, cells by column


def import_directory(
    *,
    tenant: str,
    directory: Path,
    dry_run: bool = False,
    progress: Progress | None = None,
    report: ImportReport | None = None,
) -> ImportReport:
    """Imports those of the six files that are in `directory`; one `data_import` audit row (none for a dry run).

    report: the one to fill; whoever holds it knows what went in also when this raises.
    Errors: CORE_READ_ONLY; INVALID_ID for the tenant; NOT_FOUND when the directory or all six files are missing;
    DatabaseError when the database goes away: the batches before stay, and importing again continues there.
    """
    place = shown(str(directory), 300)
    if not os.path.isdir(directory):  # unlike Path.is_dir it does not raise where a folder above is closed to us
        raise DomainError("NOT_FOUND", f"{place} is not a directory that can be read")
    # lexists: what is there under the name and is no readable file is reported, not passed over.
    found = [(spec, directory / spec.name) for spec in FILES if os.path.lexists(directory / spec.name)]
    if not found:
        if not os.access(directory, os.X_OK):
            raise DomainError("NOT_FOUND", f"{place} cannot be read: permission denied")
        raise DomainError("NOT_FOUND", f"{place} has none of {listed([spec.name for spec in FILES])}")
    return _run(tenant, found, report or ImportReport(dry_run=dry_run), progress)


def import_tables(
    *, tenant: str, tables: dict[str, list[dict[str, str]]], progress: Progress | None = None
) -> ImportReport:
    """The same for rows that are in memory already: file name -> rows of cells as a CSV file would hold them."""
    found = [(spec, tables[spec.name]) for spec in FILES if spec.name in tables]
    return _run(tenant, found, ImportReport(), progress)


def _run(
    tenant: str,
    sources: Iterable[tuple[FileSpec, Path | list[dict[str, str]]]],
    report: ImportReport,
    progress: Progress | None,
) -> ImportReport:
    refuse_if_external()
    check_id("tenant", tenant)
    try:
        for spec, source in sources:
            file = FileReport(spec.name, tell=report.tell)
            report.files.append(file)
            rows = file_rows(spec, source, file) if isinstance(source, Path) else enumerate(source, start=2)
            _import_rows(tenant, spec, rows, file, report.dry_run, progress)
    except BaseException:
        if not report.dry_run:
            # What stopped us is what has to be told; where the database is away, the audit row cannot be written.
            with contextlib.suppress(DatabaseError):
                if not connection.in_atomic_block:
                    connection.close_if_unusable_or_obsolete()  # a connection that was cut is made anew
                _audit(tenant, Decision.FAILED, report)
        raise
    if not report.dry_run:
        decision = Decision.FAILED if report.nothing else Decision.PARTIAL if report.bad else Decision.COMPLETED
        _audit(tenant, decision, report)
    report.complete = True
    return report


def _audit(tenant: str, decision: Decision, report: ImportReport) -> None:
    observe(
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


# --- rows -----------------------------------------------------------------------------------------------------------


def _import_rows(
    tenant: str, spec: FileSpec, rows: Rows, report: FileReport, dry_run: bool, progress: Progress | None
) -> None:
    seen: dict[tuple[Any, ...], tuple[int, int]] = {}
    batch: list[dict[str, Any]] = []
    repeats = 0  # rows that stand in the file twice: the same only once their first is committed
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
                repeats += 1
            else:
                report.fault(line, f"contradicts line {first_line}: same {', '.join(spec.key)}, other values")
            continue
        batch.append(row)
        if len(batch) >= BATCH_ROWS:
            _store(tenant, spec, batch, report, dry_run, progress)
            report.same += repeats
            batch, repeats = [], 0
    if batch:
        _store(tenant, spec, batch, report, dry_run, progress)
    report.same += repeats


def _read(spec: FileSpec, cells: dict[str, str]) -> dict[str, Any]:
    for name, text in cells.items():
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise ValueError(f"{name} is not UTF-8{guess(text)}")
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
        if created or changed:
            if spec.marks:
                touched = _touched(tenant, spec, [*created, *changed], old)
                mark(tenant=tenant, customer_ids=touched)
                tell(tenant, facts=touched)
            if spec.model is not CoreProduct:
                customers = {row["customer_id"] for row in (*created, *changed)}
                tell(
                    tenant,
                    customers=customers if spec.model in (CoreCustomer, CoreAssessment) else (),
                    assignments=customers if spec.model is CoreAssignment else (),
                )
    return created, changed


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
