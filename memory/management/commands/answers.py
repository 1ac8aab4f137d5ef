"""The answer cache: how often it is hit, and making all answers of an agent unreachable."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.base.errors import DomainError
from config.base.keys import DEFAULT_TENANT
from config.base.redis import RedisUnavailable
from guard.access.models import Agent
from memory.profiles.answers import services


class Command(BaseCommand):
    help = (
        "Prints the lookups of the answer cache by tenant and agent, or with --purge makes every answer of an agent "
        "unreachable at once, in all processes, and says which knowledge version is served alone. Exit code 0: done; "
        "2: Redis is away, or wrong arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--purge", metavar="AGENT", choices=Agent.values, help="whose answers to make unreachable")
        parser.add_argument("--tenant", default=DEFAULT_TENANT, help="of which tenant (default: default)")
        parser.add_argument(
            "--knowledge-version", default="",
            help="with --purge: from now on only callers of this version are served, also after later purges, until "
            "one with another version or --any-version (or the cache's Redis loses it)",
        )  # fmt: skip
        parser.add_argument(
            "--any-version", action="store_true", help="with --purge: callers of every version are served again"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("knowledge_version", "any_version"):
            if options[name] and not options["purge"]:
                raise CommandError(f"--{name.replace('_', '-')} goes with --purge", returncode=2)
        try:
            if options["purge"]:
                version = services.purge(
                    tenant=options["tenant"], agent=options["purge"],
                    knowledge_version=options["knowledge_version"], any_version=options["any_version"],
                )  # fmt: skip
                body = {"purged": options["purge"], "tenant": options["tenant"], "only_version": version or None}
                served = f"only version {version}" if version else "any version"
                self._tell(options, body, f"purged; served is {served}")
            else:
                self._tell_lookups(options)
        except RedisUnavailable:
            raise CommandError("not done: the cache Redis is away", returncode=2) from None
        except DomainError as error:
            raise CommandError(error.detail, returncode=2) from None

    def _tell_lookups(self, options: dict[str, Any]) -> None:
        rows = [
            {"tenant": tenant, "agent": agent, **counts, "hit_rate": services.hit_rate(counts)}
            for (tenant, agent), counts in sorted(services.lookups().items())
        ]
        lines = [
            f"{row['tenant']} {row['agent']}: {row['hit']} hits, {row['miss']} misses, {row['wait']} waits"
            for row in rows
        ]
        self._tell(options, {"lookups": rows}, "\n".join(lines) or "nobody has asked")

    def _tell(self, options: dict[str, Any], body: dict[str, Any], text: str) -> None:
        self.stdout.write(json.dumps(body, ensure_ascii=False, indent=2) if options["json"] else text)
