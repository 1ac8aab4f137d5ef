"""Publishes what waits in the alert outbox, without a worker."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from risk.feed.selectors import set_aside
from risk.feed.services import publish, resend_set_aside


class Command(BaseCommand):
    help = (
        "Stamps and sends alerts and updates that wait in alert_outbox. Harmless beside workers that do the same. "
        "A row that is damaged is set aside; --retry tells its alert again. "
        "Exit code 1: Redis is away, or rows wait or are set aside for another reason that is told."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
        parser.add_argument(
            "--loop", action="store_true", help="go on until interrupted, looking every --every seconds"
        )
        parser.add_argument("--every", type=float, default=0.2, metavar="S", help="seconds between looks (0.05 to 60)")

        parser.add_argument(
            "--retry",
            action="store_true",
            help="first tell the alerts of rows that were set aside again, as they now are",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        every = min(60.0, max(0.05, options["every"]))
        again = asdict(resend_set_aside()) if options["retry"] else {}
        try:
            while True:
                result = publish(at_once=not options["loop"])
                if not options["loop"] or result.published or result.stamped:
                    left = {} if options["loop"] else {"left_aside": set_aside().count()}
                    self._say({**asdict(result), **again, **left}, as_json=options["json"])
                    again = {}
                if not options["loop"]:
                    break
                time.sleep(every)
        except KeyboardInterrupt:
            return
        if result.away or result.busy or result.failed or left.get("left_aside"):
            raise SystemExit(1)

    def _say(self, counts: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(counts))
            return
        self.stdout.write(f"stamped {counts['stamped']}, published {counts['published']}")
        if "resent" in counts:
            self.stdout.write(f"told again {counts['resent']}, without an alert {counts['unknown']}")
        if counts.get("left_aside"):
            told = "rows are damaged and set aside; publish_outbox --retry tells their alerts again"
            self.stderr.write(f"{counts['left_aside']} {told}")
        if counts["busy"] or counts["failed"]:
            said = f"{counts['busy']} tenants are at another publisher, {counts['failed']} failed: their rows wait"
            self.stderr.write(said)
        if counts["away"]:
            self.stderr.write("Redis is away: rows wait in alert_outbox and are sent when it is back")
