"""`manage.py keys`: the registry of Redis keys, as a table, as a document, and against a live server."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

import redis
from django.conf import settings
from django.core.management import BaseCommand

from config import documents, key_registry
from config.base.redis import RedisUnavailable

DOCUMENT = "redis-keys.md"
MOST_LINES = 200


class Command(BaseCommand):
    help = (
        "Prints the table of all Redis keys. --check walks the live Redis of REDIS_URL, CACHE_REDIS_URL and "
        "CHANNEL_REDIS_URL below REDIS_KEY_PREFIX and lists what is not as declared, or where it does not belong. "
        "Exit code 0 when clean, 1 when not, 2 when one of them is away."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--write", action="store_true", help=f"write docs/{DOCUMENT}")
        what.add_argument("--fresh", action="store_true", help=f"exit code 1 when docs/{DOCUMENT} is out of date")
        what.add_argument("--check", action="store_true", help="walk the live Redis")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        keys = key_registry.load()
        if options["check"]:
            self._check(keys, as_json=options["json"])
            return
        text = key_registry.as_markdown(keys)
        if options["write"]:
            self.stdout.write(f"wrote {documents.write(DOCUMENT, text)}")
        elif options["fresh"]:
            if not documents.is_fresh(DOCUMENT, text):
                self.stderr.write(f"docs/{DOCUMENT} is out of date; run manage.py keys --write")
                sys.exit(1)
        elif options["json"]:
            self.stdout.write(json.dumps(key_registry.as_rows(keys), ensure_ascii=False, indent=2))
        else:
            self.stdout.write(text, ending="")

    def _check(self, keys: list[Any], *, as_json: bool) -> None:
        looked_at: dict[str, int] = {}
        findings: list[key_registry.Finding] = []
        for place in key_registry.places():
            client = redis.Redis.from_url(
                place.url, socket_timeout=settings.REDIS_TIMEOUT, socket_connect_timeout=settings.REDIS_TIMEOUT
            )
            try:
                looked_at[place.name], found = key_registry.check_live(client, keys, place)
            except RedisUnavailable as error:
                self.stderr.write(f"keys: the Redis of {place.name} cannot be read: {error}")
                sys.exit(2)
            finally:
                client.close()
            findings += found
        total = sum(looked_at.values())
        if as_json:
            report = {"keys": total, "servers": looked_at, "findings": [asdict(finding) for finding in findings]}
            self.stdout.write(json.dumps(report, indent=2))
        else:
            for finding in findings[:MOST_LINES]:
                self.stdout.write(f"{finding.server}: {finding.fault}: {finding.key}: {finding.detail}")
            if len(findings) > MOST_LINES:
                self.stdout.write(f"… and {len(findings) - MOST_LINES} more (--json lists all)")
            parts = ", ".join(f"{many} on {name}" for name, many in looked_at.items())
            self.stdout.write(f"{total} keys looked at, {len(findings)} not as declared ({parts})")
        if findings:
            sys.exit(1)
