"""Publishes what waits in the alert outbox, without a worker."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from risk.feed.services import publish


class Command(BaseCommand):
    help = (
        "Stamps and sends alerts and updates that wait in alert_outbox. Harmless beside workers that do the same. "
        "Exit code 1: Redis is away and rows wait."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
        parser.add_argument(
            "--loop", action="store_true", help="go on until interrupted, looking every --every seconds"
        )
        parser.add_argument("--every", type=float, default=0.2, metavar="S", help="seconds between looks (0.05 to 60)")

    def handle(self, *args: Any, **options: Any) -> None:
        every = min(60.0, max(0.05, options["every"]))
        try:
            while True:
                result = publish(at_once=not options["loop"])
                if not options["loop"] or result.published or result.stamped:
                    self._say(asdict(result), as_json=options["json"])
                if not options["loop"]:
                    break
                time.sleep(every)
        except KeyboardInterrupt:
            return
        if result.away:
            raise SystemExit(1)

    def _say(self, counts: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(counts))
            return
        self.stdout.write(f"stamped {counts['stamped']}, published {counts['published']}")
        if counts["away"]:
            self.stderr.write("Redis is away: rows wait in alert_outbox and are sent when it is back")
