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
        "Prints the table of all Redis keys. --check walks the live state Redis below REDIS_KEY_PREFIX and lists what "
        "is not as declared. Exit code 0 when clean, 1 when not, 2 when Redis is away."
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
        client = redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=settings.REDIS_TIMEOUT,
            socket_connect_timeout=settings.REDIS_TIMEOUT,
        )
        try:
            looked_at, findings = key_registry.check_live(client, keys)
        except RedisUnavailable as error:
            self.stderr.write(f"keys: the state Redis (REDIS_URL) cannot be read: {error}")
            sys.exit(2)
        finally:
            client.close()
        if as_json:
            self.stdout.write(
                json.dumps({"keys": looked_at, "findings": [asdict(finding) for finding in findings]}, indent=2)
            )
        else:
            for finding in findings[:MOST_LINES]:
                self.stdout.write(f"{finding.fault}: {finding.key}: {finding.detail}")
            if len(findings) > MOST_LINES:
                self.stdout.write(f"… and {len(findings) - MOST_LINES} more (--json lists all)")
            self.stdout.write(f"{looked_at} keys looked at, {len(findings)} not as declared")
        if findings:
            sys.exit(1)
