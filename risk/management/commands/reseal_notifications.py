"""`manage.py reseal_notifications`: the secrets of notification channels under the newest key."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from risk.notify.services import reseal_all


class Command(BaseCommand):
    help = (
        "Encrypts the secrets of all notification channels with the newest of NOTIFY_SECRET_KEYS (or SECRET_KEY). "
        "Former keys may go afterwards. Exit code 1 if there are secrets that no key opens: enter those again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the counts as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done, lost = reseal_all()
        if options["json"]:
            self.stdout.write(json.dumps({"resealed": done, "lost": lost}))
        else:
            self.stdout.write(f"{done} channels resealed, {lost} that no key opens")
        if lost:
            sys.exit(1)
