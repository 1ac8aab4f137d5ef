"""Escalates alerts that are late, without a worker."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.base.errors import DomainError
from risk.alerts.services import sweep


class Command(BaseCommand):
    help = (
        "Raises open alerts to LEVEL_1 and LEVEL_2 where it is due, and wakes those whose time aside is over. Harmless "
        "beside workers that do the same: each level is reached and told once. Exit code 1: some alerts failed and "
        "are tried again by the next run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="only this tenant's alerts (default: all)")
        parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = sweep(tenant=options["tenant"])
        except DomainError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(asdict(result)))
        else:
            self.stdout.write(
                f"level 1: {result.level_1}, level 2: {result.level_2}, woken: {result.woken}, "
                f"given their limits: {result.dated}, failed: {result.failed}"
            )
        if result.failed:
            raise SystemExit(1)
