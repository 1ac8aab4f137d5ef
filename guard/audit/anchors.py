"""Anchors: where the chain's head was, written outside of the database.

The seals of a database show every change but two: a tail that was cut off, and an older copy put in its place. Both
leave a chain that is whole, and shorter. An anchor is one line of JSON, signed, that names the head: number, mac, rows.
A later chain must hold that very seal. The file belongs where those who can change the database cannot write: another
machine, a write-once volume, a mailbox. It is only ever appended to.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from config.base.clock import now, rfc3339
from config.base.fields import canonical_json
from guard.audit import sealkeys
from guard.audit.chain import newest
from guard.audit.models import AuditSeal

logger = logging.getLogger(__name__)

_FIELDS = ("v", "number", "mac", "total", "head_id", "sealed_at", "at", "key_id")
_MOST_LINE_BYTES = 1024


class AnchorFault(Exception):
    """The file of anchors cannot be used as it is: which line, and why."""


@dataclass(frozen=True)
class Anchor:
    number: int
    mac: str
    total: int
    at: datetime
    line: int


def _signed(fields: Mapping[str, Any]) -> bytes:
    return canonical_json({name: fields[name] for name in _FIELDS}).encode()


def line_of(seal: Mapping[str, Any]) -> str:
    """An anchor of this seal, signed: one line, without its end."""
    fields: dict[str, Any] = {
        "v": 1,
        "number": seal["number"],
        "mac": seal["mac"],
        "total": seal["total"],
        "head_id": seal["head_id"],
        "sealed_at": rfc3339(seal["at"]),
        "at": rfc3339(now()),
        "key_id": next(iter(sealkeys.ring())),
    }
    signature = sealkeys.sign(sealkeys.ANCHOR, _signed(fields))[1]
    return canonical_json({**fields, "signature": signature})


def _line(number: int) -> str:
    return f"line {number}" if number else "the last line"


def _parsed(line: str, number: int, keys: sealkeys.Ring) -> Anchor:
    """Errors: AnchorFault (its shape or its signature), UnknownKey."""
    try:
        fields = json.loads(line)
        signed, key_id, signature = _signed(fields), str(fields["key_id"]), str(fields["signature"])
        anchor = Anchor(
            int(fields["number"]),
            str(fields["mac"]),
            int(fields["total"]),
            datetime.fromisoformat(fields["at"]),
            number,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise AnchorFault(f"{_line(number)} is no anchor") from None
    if not sealkeys.holds(sealkeys.ANCHOR, signed, key_id, signature, keys):
        raise AnchorFault(f"{_line(number)} is not as it was signed")
    return anchor


def read_anchors(path: Path, keys: sealkeys.Ring) -> Iterator[Anchor]:
    """Every anchor that the file has now, in its order; empty lines are passed over. A line at a time.

    What is appended later is left out: ask this before the head is read, or a seal that was anchored meanwhile is
    missed. Errors: OSError at once; AnchorFault, UnknownKey at the line that has it.
    """
    size = path.stat().st_size
    file = path.open("rb")

    def lines() -> Iterator[Anchor]:
        with file:
            for number, line in enumerate(file, 1):
                if file.tell() > size:
                    return
                if line.strip():
                    yield _parsed(line.decode("utf-8", "surrogateescape"), number, keys)

    return lines()


def write_anchor(path: Path) -> Mapping[str, Any]:
    """Appends an anchor of the present head and syncs it to disk; returns the seal.

    The chain must go on from the file's last anchor: after a rollback nothing is appended, for that line is the
    evidence. Errors: AnchorFault (nothing sealed yet; the chain does not go on from the last anchor; that line is
    spoilt), UnknownKey, OSError, DatabaseError.
    """
    seal = newest()
    if seal is None:
        raise AnchorFault("nothing is sealed yet")
    last = last_anchor(path)
    if last is not None:
        _must_go_on(last)
    # One write of less than a page: beside another writer, lines stay whole.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.write(descriptor, (line_of(seal) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return seal


def last_anchor(path: Path) -> Anchor | None:
    """None for a file that is not there or empty. Reads its last kilobyte. Errors: AnchorFault, UnknownKey, OSError."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_LINE_BYTES))
            lines = file.read().decode("utf-8", "surrogateescape").rstrip("\n").rsplit("\n", 1)
    except FileNotFoundError:
        return None
    return _parsed(lines[-1], 0, sealkeys.ring()) if lines[-1].strip() else None


def _must_go_on(last: Anchor) -> None:
    if AuditSeal.objects.filter(number=last.number, mac=last.mac).exists():
        return
    there = AuditSeal.objects.filter(number=last.number).exists()
    what = (
        "is another one than the anchored" if there else "is not there: the tail was cut off, or the database put back"
    )
    raise AnchorFault(f"seal {last.number} {what}; run manage.py verify_audit --anchor")


_next_at: datetime | None = None


def append_when_due() -> bool:
    """The sealer's: an anchor to AUDIT_ANCHOR_FILE every AUDIT_ANCHOR_SECONDS, where the setting is set and the chain
    has grown. What hinders it is an ERROR in the log each time; sealing goes on."""
    global _next_at
    if not settings.AUDIT_ANCHOR_FILE or (_next_at is not None and now() < _next_at):
        return False
    _next_at = now() + timedelta(seconds=settings.AUDIT_ANCHOR_SECONDS)
    path = Path(settings.AUDIT_ANCHOR_FILE)
    try:
        head, last = newest(), last_anchor(path)
        if head is None or (last is not None and (last.number, last.mac) == (head["number"], head["mac"])):
            return False
        write_anchor(path)
    except (AnchorFault, sealkeys.UnknownKey) as error:
        logger.error("audit anchor: %s", error)
        return False
    except OSError as error:
        logger.error("audit anchor: AUDIT_ANCHOR_FILE cannot be written: %s", error.strerror)
        return False
    return True
