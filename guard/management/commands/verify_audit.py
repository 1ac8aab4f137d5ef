"""manage.py verify_audit: is the audit log as it was sealed?"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError
from tqdm import tqdm

from guard.audit import memory, sealkeys
from guard.audit.anchors import AnchorFault, read_anchors
from guard.audit.exporting import Export, ExportFault
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.reading import last_number, rows_by_id, stream_rows, stream_seals
from guard.audit.report import Report
from guard.audit.sealing import backlog
from guard.audit.services import observe
from guard.audit.verifying import Verifier

UNKNOWN = 2


class Command(BaseCommand):
    help = (
        "Compares every audit row with the seal that holds it, and each seal with its key and the seal before it; "
        "names what is broken. Changes nothing; the outcome is one audit row (not with --export). "
        "Exit code 0: whole and anchored; 1: broken; 2: it could not be checked (a key, the file or the database is "
        "not there); 3: whole, but without an anchor: a tail that was cut off and a copy that is older do not show."
    )
    requires_system_checks: list[str] = []  # an export is verified without any database

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--export", type=Path, metavar="FILE", help="verify this file of audit_export, offline")
        parser.add_argument(
            "--anchor", type=Path, metavar="FILE", help="anchors of the chain's head (default: AUDIT_ANCHOR_FILE)"
        )
        parser.add_argument(
            "--keys", type=Path, metavar="FILE", help="keys to verify with, as AUDIT_SEAL_KEYS has them, one a line"
        )
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        as_json: bool = options["json"]
        try:
            report, seconds = self._verify(options)
        except ExportFault as fault:
            self._stop(str(fault), as_json, code=1 if fault.broken else UNKNOWN)
        except sealkeys.UnknownKey as unknown:
            self._stop(str(unknown), as_json)
        except (AnchorFault, ImproperlyConfigured) as fault:
            self._stop(str(fault), as_json)
        except OSError as error:
            self._stop(f"{error.filename}: {error.strerror}", as_json)
        except DatabaseError as error:
            # Its text may quote a statement: the number is enough.
            self._stop(f"the database does not answer ({type(error).__name__} {error.args[0]})", as_json)
        recorded = None if options["export"] else _record(report)
        self._tell(report, seconds, as_json, recorded)
        sys.exit(report.exit_code)

    def _verify(self, options: dict[str, Any]) -> tuple[Report, float]:
        keys = {**_keys_of(Path(options["keys"])), **sealkeys.ring()} if options["keys"] else sealkeys.ring()
        known = settings.AUDIT_ANCHOR_FILE if not options["export"] else ""
        path = Path(options["anchor"] or known) if options["anchor"] or known else None
        # Before the head is read: the sealer may write an anchor at any moment.
        anchors = read_anchors(path, keys) if path is not None else iter(())
        began = time.monotonic()
        with tqdm(unit=" rows", disable=True if options["json"] else None, file=self.stderr) as bar:
            moved: Callable[[int], None] = lambda rows: bar.update(rows) and None  # noqa: E731
            if options["export"]:
                export = Export(Path(options["export"]), keys)
                verifier = Verifier(keys, progress=moved, again=export.again)
                report = verifier.verify(export.rows(), export.seals(), anchors)
                report.unknown_keys |= export.unknown_keys
                for _line, fault in sorted(export.faults.items()):
                    report.tell(fault)
            else:
                # What is remembered first, then the seals, then the rows: each is there when the next is read.
                verifier = Verifier(keys, progress=moved, again=rows_by_id, remembered=memory.remembered())
                last = last_number()
                bar.total = backlog().sealed
                seals = stream_seals(up_to=last) if last is not None else iter(())
                report = verifier.verify(stream_rows(), seals, anchors)
        return report, time.monotonic() - began

    def _stop(self, why: str, as_json: bool, *, code: int = UNKNOWN) -> None:
        if as_json:
            self.stdout.write(json.dumps({"result": "unknown" if code == UNKNOWN else "broken", "why": why}))
        self.stderr.write(f"verify_audit: {'BROKEN: ' if code == 1 else 'not checked: '}{why}")
        sys.exit(code)

    def _tell(self, report: Report, seconds: float, as_json: bool, recorded: bool | None) -> None:
        rate = int((report.rows + report.unsealed) / seconds) if seconds else 0
        if recorded is False:
            self.stderr.write("verify_audit: the outcome could not be written to the audit log")
        if as_json:
            body = {**report.as_json(), "seconds": round(seconds, 3), "rows_a_second": rate, "recorded": recorded}
            self.stdout.write(json.dumps(body, ensure_ascii=False))
            return
        for finding in report.findings:
            self.stdout.write(self.style.ERROR(f"BROKEN {finding}"))
        if report.found > len(report.findings):
            self.stdout.write(self.style.ERROR(f"BROKEN and {report.found - len(report.findings)} more"))
        for key_id in sorted(report.unknown_keys):
            self.stdout.write(
                self.style.ERROR(f"not checked: the key {key_id!r} is not here (AUDIT_SEAL_KEYS, --keys)")
            )
        if report.anchor_fault:
            self.stdout.write(self.style.ERROR(f"not checked: {report.anchor_fault}"))
        first = f", the first of them row {report.first_row}" if report.first_row is not None else ""
        self.stdout.write(
            f"{report.rows} rows under {report.seals} seals, {report.found} broken{first}; "
            f"{report.unsealed} not sealed yet, {report.unchecked} unchecked, {report.adopted} adopted from before "
            f"there were macs; {rate} rows/s"
        )
        if report.remembered is not None:
            self.stdout.write(f"seal {report.remembered}, which this machine remembers as the newest, is there")
        if report.anchored is not None:
            self.stdout.write(
                f"anchored up to seal {report.anchored} of {report.head}; "
                f"{report.rows_after_anchor} sealed rows are newer"
            )
        elif not report.found:
            self.stdout.write(
                "no anchor: that the tail is all there, and the copy the newest, was not checked against anything "
                f"outside of this machine (exit {report.exit_code})"
            )


def _keys_of(path: Path) -> sealkeys.Ring:
    """Errors: ImproperlyConfigured, OSError."""
    keys: sealkeys.Ring = {}
    for number, line in enumerate(path.read_text().replace(",", "\n").splitlines(), 1):
        key_id, colon, raw = line.strip().partition(":")
        if not line.strip():
            continue
        try:
            keys[key_id] = bytes.fromhex(raw)
        except ValueError:
            raise ImproperlyConfigured(f"{path.name}: line {number} is not id:hex") from None
        if not colon or len(keys[key_id]) < 32:
            raise ImproperlyConfigured(f"{path.name}: line {number} is not id:hex with 32 bytes or more")
    return keys


def _record(report: Report) -> bool:
    outcome = report.as_json()
    row = observe(
        tenant="default",
        event_type=EventType.AUDIT_VERIFY,
        decision=Decision.FAILED if report.exit_code in (1, 2) else Decision.PASSED,
        actor_type=ActorType.SYSTEM,
        actor_id="verify_audit",
        object_type="audit_log",
        object_id="" if report.first_row is None else str(report.first_row),
        code=outcome["result"].upper(),
        input_summary={
            name: outcome[name]
            for name in ("rows", "seals", "unsealed", "head", "anchored", "found", "first_row", "unknown_keys")
        },
    )
    return row is not None
