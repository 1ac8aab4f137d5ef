"""`manage.py errors_doc`: every error code of the API as a document."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand

from config import documents
from config.base.errors import CATALOGUE

DOCUMENT = "errors.md"


def as_markdown() -> str:
    lines = [
        "# Errors",
        "",
        "Written by `manage.py errors_doc --write` from `config/base/errors.py`; do not edit.",
        "",
        "Every error is `application/problem+json` with `type`, `title`, `status`, `code`, `detail` and `trace_id`.",
        "Programs branch on `code`; `detail` is a sentence for people and may change.",
        "",
        "| status | code | meaning |",
        "| --- | --- | --- |",
    ]
    for code, kind in sorted(CATALOGUE.items(), key=lambda item: (item[1].status, item[0])):
        lines.append(f"| {kind.status} | `{code}` | {kind.meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


class Command(BaseCommand):
    help = f"Prints the table of all error codes. Exit code 1 when --fresh finds docs/{DOCUMENT} out of date."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--write", action="store_true", help=f"write docs/{DOCUMENT}")
        what.add_argument("--fresh", action="store_true", help=f"exit code 1 when docs/{DOCUMENT} is out of date")

    def handle(self, *args: Any, **options: Any) -> None:
        text = as_markdown()
        if options["write"]:
            self.stdout.write(f"wrote {documents.write(DOCUMENT, text)}")
        elif options["fresh"]:
            if not documents.is_fresh(DOCUMENT, text):
                self.stderr.write(f"docs/{DOCUMENT} is out of date; run manage.py errors_doc --write")
                sys.exit(1)
        else:
            self.stdout.write(text, ending="")
