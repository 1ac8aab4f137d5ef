"""The bytes that macs and digests are made of: one spelling of a row and of a seal, in the database and in an export.

A row is a JSON array of its columns in the order of COLUMNS, the summary as the very text that is stored: an edit
that leaves the JSON's meaning is an edit. Whatever a tampered column may hold (bytes, a number for a text) has a
spelling too, so that checking never stumbles over it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from config.base.clock import rfc3339
from config.base.fields import canonical_json
from guard.audit import sealkeys
from guard.audit.models import AuditLog

COLUMNS = (
    "id", "tenant", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "input_summary", "customer", "mac",
)  # fmt: skip
LEAF_BYTES = 16

SEAL_COLUMNS = (
    "number", "at", "from_id", "head_id", "members", "count", "total", "opened", "closed", "oldest_open", "adopted",
    "digest", "leaves", "previous_mac", "key_id",
)  # fmt: skip

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: f"{type(value).__name__}:{value!r}"
).encode


class Row(NamedTuple):
    """id; whole: its canonical bytes; content: those that its own mac covers; mac: that one, as stored."""

    id: int
    whole: bytes
    content: bytes
    mac: str


def _moment(value: Any) -> Any:
    """RFC 3339 of what a driver gives for a datetime column: naive UTC (MariaDB) or text (SQLite)."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds") + "Z"
    return rfc3339(value)


def row_of(values: Sequence[Any]) -> Row:
    """From the columns as the driver gives them, in the order of COLUMNS; `at` may be RFC 3339 already."""
    row_id, mac = int(values[0]), values[-1]
    content = _encode([values[1], _moment(values[2]), *values[3:-1]])[1:-1].encode("utf-8", "surrogatepass")
    whole = b"[%d,%b,%b]" % (row_id, content, _encode(mac).encode("utf-8", "surrogatepass"))
    return Row(row_id, whole, content, mac if isinstance(mac, str) else "")


def leaf_of(row: Row) -> bytes:
    return hashlib.sha256(row.whole).digest()[:LEAF_BYTES]


def sign_row(row: AuditLog) -> str:
    """The mac of a row that is about to be inserted: over all of it but its id, which it does not have yet."""
    values = [getattr(row, name) for name in COLUMNS[1:-1]]
    values[COLUMNS.index("input_summary") - 1] = canonical_json(row.input_summary)
    key_id, mac = sealkeys.sign(sealkeys.ROW, row_of([0, *values, ""]).content)
    return f"{key_id}:{mac}"


def row_holds(row: Row, keys: sealkeys.Ring) -> bool:
    """Whether the row's own mac is right. Errors: UnknownKey."""
    key_id, _colon, mac = row.mac.rpartition(":")
    return bool(key_id) and sealkeys.holds(sealkeys.ROW, row.content, key_id, mac, keys)


def seal_bytes(seal: Mapping[str, Any]) -> bytes:
    """What a seal's mac covers: every column but the mac itself."""
    content = {name: seal[name] for name in SEAL_COLUMNS}
    content["at"] = _moment(content["at"])
    return canonical_json(content).encode("utf-8", "surrogatepass")


def seal_holds(seal: Mapping[str, Any], keys: sealkeys.Ring) -> bool:
    """Errors: UnknownKey."""
    return sealkeys.holds(sealkeys.SEAL, seal_bytes(seal), seal["key_id"], seal["mac"], keys)
