"""manage.py audit_seal: seals by hand what the worker seals each second."""

from __future__ import annotations

import json
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from tqdm import tqdm

from guard.audit.sealing import backlog, seal_waiting


class Command(BaseCommand):
    help = (
        "Seals what waits. Harmless beside the worker. Exit code 0: nothing waits any more; 1: something does after "
        "--seconds; 2: the database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=600.0, help="how long at most (default 600)")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["seconds"] <= 0:
            raise CommandError("--seconds must be positive", returncode=2)
        until = time.monotonic() + options["seconds"]
        seals = rows = 0
        try:
            with tqdm(
                unit=" rows", total=backlog().rows, disable=True if options["json"] else None, file=self.stderr
            ) as bar:
                while True:
                    done = seal_waiting(seconds=min(1.0, max(0.0, until - time.monotonic())))
                    seals, rows = seals + done.seals, rows + done.rows
                    bar.update(done.rows)
                    if not (done.behind or done.lost) or time.monotonic() >= until:
                        break
            left = backlog().rows
        except DatabaseError as error:
            raise CommandError(f"the database does not answer ({type(error).__name__})", returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps({"seals": seals, "rows": rows, "left": left}))
        else:
            self.stdout.write(f"{rows} rows under {seals} new seals, {left} left")
        if left:
            raise CommandError(f"{left} rows are not sealed yet", returncode=1)
