"""Compares Redis, the stream and MySQL, and says what is missing."""

from __future__ import annotations

import getpass
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.utils.dateparse import parse_datetime
from tqdm import tqdm

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id, check_session_id
from config.base.redis import RedisUnavailable
from memory.sessions.findings import FAULTS, LOSSES
from memory.sessions.reconcile import Report, reconcile, select

_SPAN = re.compile(r"([0-9]{1,9})([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SHOWN = 200


def moment(text: str) -> datetime:
    """`2h` (before now) or an RFC 3339 time. Errors: ValueError."""
    found = _SPAN.match(text)
    if found:
        return now() - timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    parsed = parse_datetime(text)
    if parsed is None:
        raise ValueError(f"{text!r} is neither a span such as 2h nor a time such as 2026-11-30T08:00:00Z")
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def operator() -> str:
    """Who runs this, as the system knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in containers
        return "operator"


class Command(BaseCommand):
    help = (
        "Compares, for each session, what Redis holds (context, window, receipts), what is queued and what is in the "
        "database: gaps in the numbers and what explains them, messages that are nowhere, entries of unknown sessions, "
        "outdated state. Harmless beside everything that runs. Exit code 0: nothing is lost or wrong; 1: something is "
        "lost, or is wrong and was not repaired; 2: not done (Redis or the database is away, or wrong arguments)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--session", default=None, help="one session id")
        parser.add_argument("--tenant", default=None, help="sessions of one tenant")
        parser.add_argument("--since", default=None, help="sessions in use since then: 2h, 1d, or an RFC 3339 time")
        parser.add_argument("--fix", action="store_true", help="drain, and repair what can be repaired")
        parser.add_argument(
            "--accept", action="store_true", help="take note of the losses that remain: later runs tell them as known"
        )
        parser.add_argument("--json", action="store_true", help="machine-readable report")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            since = moment(options["since"]) if options["since"] else None
            if options["session"] is not None:
                check_session_id(options["session"])
            if options["tenant"] is not None:
                check_id("tenant", options["tenant"])
        except (ValueError, DomainError) as error:
            raise CommandError(str(error), returncode=2) from None
        try:
            report = self._run(since, options)
        except RedisUnavailable as error:
            raise CommandError(f"not done: {error}", returncode=2) from None
        except DatabaseError as error:
            raise CommandError(f"not done: the database is away ({type(error).__name__})", returncode=2) from None
        finally:
            connection.close()
        self._tell(report, as_json=options["json"], verbose=options["verbosity"] > 1)
        if not report.clean:
            raise CommandError(
                f"{sum(finding.open for finding in report.findings)} findings are losses or faults not repaired",
                returncode=1,
            )

    def _run(self, since: datetime | None, options: dict[str, Any]) -> Report:
        rows = select(tenant=options["tenant"], session_id=options["session"], since=since)
        if options["session"] is not None and not rows.exists():
            raise CommandError(f"no session {options['session']!r}", returncode=2)
        whole = options["session"] is None and options["tenant"] is None and since is None
        quiet = True if options["json"] else None
        with tqdm(total=rows.count(), unit=" sessions", disable=quiet, file=self.stderr) as bar:
            return reconcile(
                rows=rows,
                whole=whole,
                tenant=options["tenant"],
                fix=options["fix"],
                accept_by=operator() if options["accept"] else "",
                progress=lambda count: bar.update(count) and None,
            )

    def _tell(self, report: Report, *, as_json: bool, verbose: bool) -> None:
        if as_json:
            self.stdout.write(
                json.dumps(
                    {
                        "clean": report.clean,
                        "counts": report.counts(),
                        "sessions": report.sessions,
                        "messages": report.messages,
                        "queued": report.queued,
                        "dead_letters": report.dead_letters,
                        "findings": [{**f.as_dict(), "open": f.open} for f in report.findings],
                    },
                    ensure_ascii=False,
                )
            )
            return
        counts = ", ".join(f"{kind} {count}" for kind, count in report.counts().items()) or "nothing to tell"
        self.stdout.write(
            f"{report.sessions} sessions, {report.messages} messages stored, {report.queued} queued, "
            f"{report.dead_letters} dead letters waiting: {counts}"
        )
        shown = [f for f in report.findings if verbose or f.kind in LOSSES | FAULTS]
        for finding in shown[:SHOWN]:
            numbers = f" {finding.first}-{finding.last}" if finding.last else ""
            entry = f" entry {finding.entry_id}" if finding.entry_id else ""
            end = f" [{finding.repaired}]" if finding.repaired else ""
            self.stdout.write(
                f"{finding.kind} {finding.tenant}/{finding.session_id}{numbers}{entry}: {finding.why}{end}"
            )
        if len(shown) > SHOWN:
            self.stdout.write(f"… and {len(shown) - SHOWN} more (--json has all)")
