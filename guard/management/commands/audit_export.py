"""manage.py audit_export: the whole audit log with its seals, as a file that proves itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from tqdm import tqdm

from guard.audit.exporting import write_export
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.sealing import backlog, seal_waiting
from guard.audit.services import record


class Command(BaseCommand):
    help = (
        "Writes every audit row, of every tenant, and every seal to FILE as JSON lines; verify_audit --export checks "
        "it anywhere, with the keys alone. Recorded in the log first. The file is made anew, readable by its owner "
        "only, and appears when it is whole. Exit code 0: written; 2: not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--by", default="", help="who exports, for the record (default: the account's name)")
        parser.add_argument("--json", action="store_true", help="print the counts as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(options["file"])
        part = path.with_name(path.name + ".part")
        try:
            # The row that tells of the export is in it, sealed.
            record(
                tenant="default",
                event_type=EventType.EVIDENCE_EXPORTED,
                decision=Decision.EXPORTED,
                actor_type=ActorType.STAFF,
                actor_id=options["by"] or os.environ.get("USER", "") or "manage.py",
                object_type="audit_log",
                input_summary={"format": "sealed", "all_tenants": True},
            )
            while seal_waiting(seconds=5).behind:
                pass
            bar = tqdm(
                unit=" rows", total=backlog().sealed, disable=True if options["json"] else None, file=self.stderr
            )
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with bar, open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as out:
                counts = write_export(out, progress=lambda rows: bar.update(rows) and None)
                out.flush()
                os.fsync(out.fileno())
            os.replace(part, path)
        except DatabaseError as error:
            raise CommandError(f"the database does not answer ({type(error).__name__})", returncode=2) from None
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}", returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(counts))
        else:
            self.stdout.write(f"{counts['rows']} rows and {counts['seals']} seals in {path}")
