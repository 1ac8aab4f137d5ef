"""Replays a file of recorded conversations through the HTTP API."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from tqdm import tqdm

from guard.access.models import Agent
from guard.access.services import issue_key, revoke_key
from memory.sessions.models import AgentMessage
from memory.sessions.replay import BadLine, Dialogue, Replayer, Report, read_dialogues

LAG_PATIENCE = 60.0  # seconds that the last queued message is waited for


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


class Command(BaseCommand):
    help = (
        "Replays conversations (one JSON object a line: dialogue_id, messages) through the HTTP API: one session a "
        "dialogue, turn by turn, in order. Running it again doubles nothing. A malformed line is reported with its "
        "number and the rest goes on. Exit code 0: all are in; 1: some are not; 2: wrong arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="JSON lines")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the server is")
        parser.add_argument("--key", default="", help="an agent key; without it one is made for this run and revoked")
        parser.add_argument("--agent", default=Agent.CUSTOMER, choices=Agent.values, help="the agent of a made key")
        parser.add_argument("--actor", default="", help="one actor for all dialogues (default: one for each)")
        parser.add_argument("--concurrency", type=int, default=8, help="dialogues at a time (default 8)")
        parser.add_argument("--durability", default="async", choices=["async", "sync"])
        parser.add_argument("--limit", type=int, default=None, help="only so many dialogues")
        parser.add_argument("--patience", type=float, default=120.0, help="seconds to retry a request (default 120)")
        parser.add_argument("--json", action="store_true", help="machine-readable report")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["concurrency"] < 1 or options["concurrency"] > 256:
            raise CommandError("--concurrency is outside 1..256", returncode=2)
        address = urlsplit(options["url"])
        if address.scheme not in ("http", "https") or not address.hostname:
            raise CommandError(f"--url {options['url']!r} is no address; use http://127.0.0.1:8000", returncode=2)
        if options["limit"] is not None and options["limit"] < 1:
            raise CommandError("--limit must be positive", returncode=2)
        dialogues, bad = self._read(options["file"], options["limit"])
        made = None
        key = options["key"]
        if not key:
            try:
                made = issue_key(agent=options["agent"], note="import_dialogues", issued_by="import_dialogues")
            except DatabaseError as error:
                raise CommandError(
                    f"no --key given, and none can be made: {type(error).__name__} from the database", returncode=2
                ) from None
            key = made.key
        replayer = Replayer(
            url=options["url"],
            key=key,
            durability=options["durability"],
            patience=options["patience"],
            actor=options["actor"],
        )
        total = sum(len(dialogue.messages) for dialogue in dialogues)
        quiet = options["json"] or not sys.stderr.isatty()
        try:
            with tqdm(total=total, unit=" messages", disable=quiet) as bar, _lag_sampler(replayer):
                report = replayer.run(dialogues, concurrency=options["concurrency"], progress=bar.update)
            report.bad.extend(bad)
            report.bad.sort(key=lambda fault: fault.line)
            stored, settled = _wait_until_stored(dialogues, report, total)
        finally:
            replayer.close()
            if made is not None:
                self._end_key(made.principal.principal_id)
        self._print(report, total=total, stored=stored, settled=settled, as_json=options["json"])
        if report.bad or report.messages < total or (stored is not None and stored < total):
            sys.exit(1)

    def _end_key(self, principal_id: str) -> None:
        """The key made for this run ends with it, also where the database went away meanwhile and came back."""
        for attempt in range(5):
            connection.close()  # the server may have dropped the one of before the replay
            try:
                revoke_key(principal_id=principal_id, revoked_by="import_dialogues")
            except DatabaseError:
                time.sleep(attempt)
            else:
                return
        self.stderr.write(
            f"the database is away and this run's key is still valid: manage.py agent_key --revoke {principal_id}"
        )

    def _read(self, path: Path, limit: int | None) -> tuple[list[Dialogue], list[BadLine]]:
        dialogues: list[Dialogue] = []
        bad: list[BadLine] = []
        try:
            with path.open("rb") as file:
                for item in read_dialogues(file, path.name):
                    if isinstance(item, BadLine):
                        bad.append(item)
                    else:
                        dialogues.append(item)
                        if limit is not None and len(dialogues) >= limit:
                            break
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}", returncode=2) from None
        return dialogues, bad

    def _print(self, report: Report, *, total: int, stored: int | None, settled: float | None, as_json: bool) -> None:
        def ms(share: float) -> float | None:
            value = percentile(report.latencies, share)
            return None if value is None else round(value * 1000, 1)

        rate = round(report.messages / report.seconds, 1) if report.seconds else None
        lag = percentile(report.lags, 0.99)
        result = {
            "dialogues": report.dialogues,
            "messages": report.messages,
            "messages_in_file": total,
            "in_database": stored,
            "seconds": round(report.seconds, 2),
            "messages_per_second": rate,
            "append_ms": {"p50": ms(0.5), "p99": ms(0.99)},
            "retries": report.retries,
            "lag_seconds": {
                "p99": None if lag is None else round(lag, 2),
                "all_in_after": None if settled is None else round(settled, 2),
            },
            "malformed": [{"line": fault.line, "reason": fault.reason} for fault in report.bad],
        }
        if as_json:
            self.stdout.write(json.dumps(result, ensure_ascii=False))
            return
        for fault in report.bad:
            self.stderr.write(f"line {fault.line}: {fault.reason}")
        self.stdout.write(f"dialogues            {report.dialogues}")
        self.stdout.write(f"messages             {report.messages} of {total}")
        self.stdout.write(f"messages/s           {rate} in {report.seconds:.1f} s, {report.retries} retries")
        self.stdout.write(f"append p50 / p99     {ms(0.5)} ms / {ms(0.99)} ms")
        if stored is None or settled is None:
            self.stdout.write("in the database      cannot be seen from here")
        else:
            self.stdout.write(f"in the database      {stored} of {total}, {settled:.2f} s after the last answer")
            if lag is not None:
                self.stdout.write(f"lag p99              {lag:.2f} s ({len(report.lags)} samples)")
        if report.bad:
            self.stdout.write(f"lines left out       {len(report.bad)}")


@contextmanager
def _lag_sampler(replayer: Replayer) -> Iterator[None]:
    """Measures during the run how long the newest acknowledged message takes to be in the database, time and again.
    Gives no samples where this installation's database is not the server's."""
    over = threading.Event()

    def sample() -> None:
        try:
            while not over.is_set():
                newest = replayer.newest
                if newest is None:
                    over.wait(0.05)
                    continue
                session_id, seq, acknowledged = newest
                wanted = AgentMessage.objects.filter(session_row__session_id=session_id, seq=seq)
                while not wanted.exists():
                    if over.wait(0.05):
                        return
                replayer.report.lags.append(max(0.0, time.monotonic() - acknowledged))
                over.wait(0.2)
        except DatabaseError:
            return
        finally:
            connection.close()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _wait_until_stored(dialogues: Sequence[Dialogue], report: Report, total: int) -> tuple[int | None, float | None]:
    """How many of the file's messages the database has, and after how many seconds it had all that were answered.
    (None, None) where the database is away or is not the server's."""
    began = time.monotonic()
    last, changed = -1, began
    connection.close()  # the server may have dropped the one of before the replay
    while True:
        try:
            stored = _count_stored(dialogues)
        except DatabaseError:
            return None, None
        if stored >= min(total, report.messages):
            return stored, time.monotonic() - began
        if stored != last:
            last, changed = stored, time.monotonic()
        # Nothing at all after some seconds: another database than the server's.
        patience = 10.0 if stored == 0 else LAG_PATIENCE
        if time.monotonic() - changed > patience:
            return (None, None) if stored == 0 else (stored, None)
        time.sleep(0.1)


def _count_stored(dialogues: Sequence[Dialogue]) -> int:
    total = 0
    for start in range(0, len(dialogues), 400):
        names = [dialogue.session_id for dialogue in dialogues[start : start + 400]]
        total += AgentMessage.objects.filter(session_row__session_id__in=names).count()
    return total
