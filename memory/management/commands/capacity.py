"""How much memory sessions take in this Redis, measured, and what many of them will take."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from tqdm import tqdm

from config.base.redis import RedisUnavailable
from memory.sessions.capacity import EXPECTED_BYTES, Measured, measure

MIB = 1024 * 1024


class Command(BaseCommand):
    help = (
        "Writes sample sessions of ten rounds into the live Redis and database under a scratch tenant, measures what "
        "they take by key, removes them, and projects. The live queue and live keys are left alone. Exit code 0: "
        "measured; 1: above --budget; 2: not done (Redis or the database is away, or wrong arguments)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--sessions", type=int, default=100_000, help="sessions to project for (default 100000)")
        parser.add_argument("--samples", type=int, default=200, help="sessions to write and measure (default 200)")
        parser.add_argument("--rounds", type=int, default=10, help="questions with their answers (default 10)")
        parser.add_argument("--given-ids", action="store_true", help="messages that bring their own entry ids")
        parser.add_argument(
            "--budget",
            type=int,
            default=None,
            help="exit with 1 when a session is projected at more bytes (default: any)",
        )
        parser.add_argument("--json", action="store_true", help="machine-readable result")

    def handle(self, *args: Any, **options: Any) -> None:
        for name, low, high in (("sessions", 1, 10**10), ("samples", 1, 10_000), ("rounds", 1, 1000)):
            if not low <= options[name] <= high:
                raise CommandError(f"--{name} is outside {low}..{high}", returncode=2)
        quiet = True if options["json"] else None
        try:
            with tqdm(total=options["samples"], unit=" sessions", disable=quiet, file=self.stderr) as bar:
                measured = measure(
                    samples=options["samples"],
                    rounds=options["rounds"],
                    given_ids=options["given_ids"],
                    progress=bar.update,
                )
        except RedisUnavailable as error:
            raise CommandError(f"not done: {error}", returncode=2) from None
        except DatabaseError as error:
            raise CommandError(f"not done: the database is away ({type(error).__name__})", returncode=2) from None
        finally:
            connection.close()
        self._tell(measured, options)
        if options["budget"] is not None and measured.per_session > options["budget"]:
            raise CommandError(
                f"a session takes {measured.per_session:.0f} bytes, more than {options['budget']}", returncode=1
            )

    def _tell(self, measured: Measured, options: dict[str, Any]) -> None:
        sessions = options["sessions"]
        projected = measured.projected(sessions)
        if options["json"]:
            self.stdout.write(
                json.dumps(
                    {
                        "samples": measured.samples,
                        "rounds": measured.rounds,
                        "bytes_per_session": {**{k: round(v) for k, v in measured.keys.items()}},
                        "total_bytes_per_session": round(measured.total),
                        "used_memory_bytes_per_session": round(measured.grown),
                        "used_memory_disturbed": measured.disturbed,
                        "projected_bytes_per_session": round(measured.per_session),
                        "encodings": measured.encodings,
                        "sessions": sessions,
                        "projected_bytes": projected,
                        "expected_bytes_per_session": EXPECTED_BYTES,
                    }
                )
            )
            return
        self.stdout.write(f"{measured.samples} sessions of {measured.rounds} rounds, bytes per session:")
        for kind, size in measured.keys.items():
            encoding = ", ".join(measured.encodings.get(kind, [])) or "not there"
            self.stdout.write(f"  {kind:<6}{size:>9.0f}   {encoding}")
        self.stdout.write(f"  {'all':<6}{measured.total:>9.0f}   (estimated: {EXPECTED_BYTES})")
        verdict = "disturbed by other traffic: the projection goes by the keys" if measured.disturbed else "projected"
        self.stdout.write(f"  used_memory grew by {measured.grown:.0f} a session ({verdict})")
        self.stdout.write(
            f"{sessions} sessions: {projected / MIB:.0f} MiB (estimated: {sessions * EXPECTED_BYTES / MIB:.0f} MiB)"
        )
