"""manage.py import_core DIR"""

from __future__ import annotations

import csv
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from config.base.errors import DomainError
from memory.core.importer import ImportReport, RowError, import_directory
from memory.core.reading import listed


class Command(BaseCommand):
    help = (
        "Imports the core system's CSV files from a directory: customers, products, assessments, assignments, "
        "positions, trades (each optional). Running it again changes nothing. "
        "Exit code: 0 all rows are in, 1 some rows were refused (each is named), 2 nothing could be imported, or the "
        "database failed on the way (what went in by then is said; run it again)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("dir", type=Path, metavar="DIR")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--dry-run", action="store_true", help="read and compare everything, write nothing")
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
        parser.add_argument(
            "--errors", type=Path, metavar="FILE", help="write every refused row to a CSV file: file, line, reason"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with ExitStack() as stack:
            options["tell"] = self._error_file(options["errors"], stack)
            self._import(options)

    def _error_file(self, path: Path | None, stack: ExitStack) -> Callable[[RowError], None] | None:
        """Opened before anything is imported: a report that cannot be written is said while it costs nothing."""
        if path is None:
            return None
        try:
            file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
        except OSError as error:
            raise CommandError(f"--errors {path}: {error.strerror}", returncode=2) from None
        writer = csv.writer(file)
        writer.writerow(("file", "line", "reason"))

        def tell(error: RowError) -> None:
            writer.writerow((error.file, error.line, error.reason))

        return tell

    def _import(self, options: dict[str, Any]) -> None:
        def progress(file: str, rows: int) -> None:
            bar.set_description(file)
            bar.update(rows)

        bar = tqdm(unit=" rows", disable=None if not options["json"] else True, file=self.stderr)
        report = ImportReport(dry_run=options["dry_run"], tell=options["tell"])
        try:
            import_directory(
                tenant=options["tenant"],
                directory=options["dir"],
                dry_run=options["dry_run"],
                progress=progress,
                report=report,
            )
        except DomainError as error:
            bar.close()
            if options["json"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}))
            self.stderr.write(f"import_core: {error.detail}")
            sys.exit(2)
        except BaseException:
            # manage.py says why; what is in the tables by now, only we can say.
            bar.close()
            self._tell(report, as_json=options["json"])
            self.stderr.write("import_core: stopped before the end; what is counted as in stays, the rest is not in")
            raise
        bar.close()
        self._tell(report, as_json=options["json"])
        if report.bad:
            sys.exit(2 if report.nothing else 1)

    def _tell(self, report: ImportReport, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report.as_json(), ensure_ascii=False))
            return
        for file in report.files:
            for fault in file.errors:
                self.stderr.write(str(fault))
            if file.bad > len(file.errors):
                self.stderr.write(f"{file.file}: and {file.bad - len(file.errors)} more")
            if file.unknown_columns:
                self.stderr.write(f"{file.file}: unknown columns left out: {listed(file.unknown_columns)}")
            left = f", {file.left} not in" if file.left else ""
            self.stdout.write(
                f"{file.file}: {file.rows} rows, {file.created} new, {file.changed} changed, "
                f"{file.same} the same, {file.bad} refused{left}{' (dry run)' if report.dry_run else ''}"
            )
