"""manage.py import_core DIR"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from tqdm import tqdm

from config.base.errors import DomainError
from memory.core.importer import ImportReport, import_directory
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

    def handle(self, *args: Any, **options: Any) -> None:

        def progress(file: str, rows: int) -> None:
            bar.set_description(file)
            bar.update(rows)

        bar = tqdm(unit=" rows", disable=None if not options["json"] else True, file=self.stderr)
        report = ImportReport(dry_run=options["dry_run"])
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
