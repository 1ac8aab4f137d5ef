"""manage.py audit_anchor: where the chain of seals ends now, to keep outside of the database."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError

from guard.audit.anchors import AnchorFault, write_anchor
from guard.audit.sealing import seal_waiting
from guard.audit.sealkeys import UnknownKey


class Command(BaseCommand):
    help = (
        "Seals what waits and appends an anchor of the head, one signed line of JSON, to a file. Keep that file where "
        "those who can change the database cannot write; verify_audit --anchor compares with it. "
        "Exit code 0: written; 1: the chain does not go on from the file's last anchor (nothing is written: that line "
        "is evidence); 2: it could not be written."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", type=Path, metavar="FILE", required=True, help="append to this file")
        parser.add_argument("--json", action="store_true", help="print what was anchored as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            while seal_waiting(seconds=5).behind:
                pass
            seal = write_anchor(Path(options["write"]))
        except AnchorFault as fault:
            self.stderr.write(f"audit_anchor: {fault}")
            sys.exit(1)
        except UnknownKey as unknown:
            self.stderr.write(f"audit_anchor: {unknown}")
            sys.exit(2)
        except OSError as error:
            self.stderr.write(f"audit_anchor: {error.filename}: {error.strerror}")
            sys.exit(2)
        except DatabaseError as error:
            self.stderr.write(f"audit_anchor: the database does not answer ({type(error).__name__} {error.args[0]})")
            sys.exit(2)
        if options["json"]:
            self.stdout.write(json.dumps({name: seal[name] for name in ("number", "mac", "total")}))
        else:
            self.stdout.write(f"seal {seal['number']} ({seal['total']} rows) anchored in {options['write']}")
