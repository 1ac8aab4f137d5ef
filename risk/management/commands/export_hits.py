"""manage.py export_hits FILE"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from config.base.fields import canonical_json
from risk.rules.selectors import live_hits


class Command(BaseCommand):
    help = (
        "Writes the live hits as JSON lines: rule, evidence_key, customer_id, trade_id, score, subtypes; ordered by "
        "rule and evidence key. FILE appears only when it is complete; - is standard output. Exit code: 0 done, 1 done "
        "but for stored rows that cannot be read, which are left out and counted, 2 FILE cannot be written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--data-quality", action="store_true", help="findings on missing facts too")

    def handle(self, *args: Any, **options: Any) -> None:
        hits, left_out = live_hits(tenant=options["tenant"], data_quality=options["data_quality"])
        lines = [canonical_json(hit) for hit in hits]
        self._write(lines, options["file"])
        if left_out:
            self.stderr.write(
                f"export_hits: {left_out} stored hits cannot be read and were left out; manage.py doctor tells which"
            )
            sys.exit(1)

    def _write(self, lines: list[str], file: str) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if file == "-":
            self.stdout.write(text, ending="")
            return
        target = Path(file)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            self.stderr.write(f"export_hits: {target} cannot be written: {error.strerror}")
            sys.exit(2)
        self.stderr.write(f"{len(lines)} hits written to {target}")
