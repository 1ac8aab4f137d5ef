"""Tells a case file that was handed out from a changed one."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.base.clock import rfc3339
from risk.console.casefile.making import found_by_hash, sha256_of


class Command(BaseCommand):
    help = (
        "Compares a PDF that is handed in with the hashes of the case files that were handed out. "
        "Exit code 0: it is one of them, to the byte; 1: it is none."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="the PDF")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with open(options["file"], "rb") as file:
                digest = sha256_of(file)
        except OSError as error:
            raise CommandError(f"the file cannot be read: {error.strerror}", returncode=2) from error
        found = [
            {
                "alert_id": row.alert_id,  # type: ignore[attr-defined]
                "made_by": row.made_by.get_username(),
                "made_at": rfc3339(row.made_at),
                "evidence_hash": row.evidence_hash,
                "language": row.language,
            }
            for row in found_by_hash(tenant=options["tenant"], sha256=digest)
        ]
        if options["json"]:
            self.stdout.write(json.dumps({"sha256": digest, "known": bool(found), "case_files": found}))
        else:
            self.stdout.write(f"SHA-256 {digest}")
            for one in found:
                self.stdout.write(f"case file of alert {one['alert_id']}, made {one['made_at']} by {one['made_by']}")
        if not found:
            raise CommandError("no case file of this tenant has these bytes", returncode=1)
