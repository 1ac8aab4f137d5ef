"""The bytes that macs and digests are made of: one spelling of a row and of a seal, in the database and in an export.

A row is a JSON array of its columns in the order of COLUMNS, the summary as the very text that is stored: an edit
that leaves the JSON's meaning is an edit. `link` is left out where it is empty, as in rows that are older than it:
their bytes stay what they were. Whatever a tampered column may hold (bytes, a number for a text) has a spelling too,
so that checking never stumbles over it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from config.base.clock import rfc3339
from config.base.fields import canonical_json
from guard.audit import sealkeys
from guard.audit.models import AuditLog
from guard.audit.ranges import Ranges, ranges_of

COLUMNS = (
    "id", "tenant", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "input_summary", "customer", "link", "mac",
)  # fmt: skip
_LINK = COLUMNS.index("link")
LEAF_BYTES = 16
_SECOND_HEX = 32

SEAL_COLUMNS = (
    "number", "at", "from_id", "head_id", "members", "count", "total", "opened", "closed", "oldest_open", "adopted",
    "digest", "leaves", "previous_mac", "key_id",
)  # fmt: skip

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: f"{type(value).__name__}:{value!r}"
).encode


class Row(NamedTuple):
    """id; whole: its canonical bytes; content: those that its own mac covers; link and mac: as stored."""

    id: int
    whole: bytes
    content: bytes
    mac: str
    link: str = ""


def _moment(value: Any) -> Any:
    """RFC 3339 of what a driver gives for a datetime column: naive UTC (MariaDB) or text (SQLite)."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            return value
        if moment.tzinfo is None:
            return moment.isoformat(timespec="microseconds") + "Z"
        return rfc3339(moment)
    except (ValueError, OverflowError):
        return value


def row_of(values: Sequence[Any]) -> Row:
    """From the columns as the driver gives them, in the order of COLUMNS; `at` may be RFC 3339 already."""
    row_id, link, mac = int(values[0]), values[_LINK], values[-1]
    written = [values[1], _moment(values[2]), *values[3:_LINK], *([] if link == "" else [link])]
    content = _encode(written)[1:-1].encode("utf-8", "surrogatepass")
    whole = b"[%d,%b,%b]" % (row_id, content, _encode(mac).encode("utf-8", "surrogatepass"))
    return Row(row_id, whole, content, mac if isinstance(mac, str) else "", link if isinstance(link, str) else "")


def leaf_of(row: Row) -> bytes:
    return hashlib.sha256(row.whole).digest()[:LEAF_BYTES]


def sign_row(row: AuditLog) -> str:
    """The mac of a row that is about to be inserted: over all of it but its id, which it does not have yet.

    Where there are several keys, `row.link` gets a second, shorter mac with the next of them: during a change of keys a
    sealer that has not the newest yet can tell all the same that the row is ours.
    """
    ring = list(sealkeys.ring())
    if row.link and len(ring) > 1:
        mac = sealkeys.sign_with(ring[1], sealkeys.SECOND, _content_of(row))
        row.link = f"{row.link}~{ring[1]}:{mac[:_SECOND_HEX]}"
    key_id, mac = sealkeys.sign(sealkeys.ROW, _content_of(row))
    return f"{key_id}:{mac}"


def _content_of(row: AuditLog) -> bytes:
    values = [getattr(row, name) for name in COLUMNS[1:-1]]
    values[COLUMNS.index("input_summary") - 1] = canonical_json(row.input_summary)
    return row_of([0, *values, ""]).content


def row_holds(row: Row, keys: sealkeys.Ring) -> bool:
    """Whether the row's own mac is right; where its key is not here, whether the second one is. Errors: UnknownKey:
    neither key is here."""
    key_id, _colon, mac = row.mac.rpartition(":")
    if not key_id:
        return False
    try:
        return sealkeys.holds(sealkeys.ROW, row.content, key_id, mac, keys)
    except sealkeys.UnknownKey:
        link, tilde, second = row.link.partition("~")
        other, _colon, short = second.partition(":")
        if not tilde or other not in keys:
            raise
    before = row.content[: -len(_encode(row.link).encode("utf-8", "surrogatepass"))]
    made = sealkeys.sign_with(other, sealkeys.SECOND, before + _encode(link).encode(), keys=keys)
    return hmac.compare_digest(made[:_SECOND_HEX].encode(), short.encode("utf-8", "surrogatepass"))


def new_seal(
    *,
    number: int,
    at: datetime,
    from_id: int,
    head_id: int,
    rows: Sequence[Row],
    total: int,
    previous_mac: str,
    opened: Ranges | None = None,
    closed: Ranges | None = None,
    oldest_open: int = 0,
    adopted: int = 0,
) -> dict[str, Any]:
    """The columns of a seal over these rows, but its mac."""
    digest, leaves = hashlib.sha256(), []
    for row in rows:
        digest.update(row.whole + b"\n")
        leaves.append(leaf_of(row))
    return {
        "number": number,
        "at": at,
        "from_id": from_id,
        "head_id": head_id,
        "members": ranges_of(row.id for row in rows),
        "count": len(rows),
        "total": total,
        "opened": opened or [],
        "closed": closed or [],
        "oldest_open": oldest_open,
        "adopted": adopted,
        "digest": digest.hexdigest(),
        "leaves": base64.b64encode(b"".join(leaves)).decode(),
        "previous_mac": previous_mac,
        "key_id": next(iter(sealkeys.ring())),
    }


def seal_bytes(seal: Mapping[str, Any]) -> bytes:
    """What a seal's mac covers: every column but the mac itself."""
    content = {name: seal[name] for name in SEAL_COLUMNS}
    content["at"] = _moment(content["at"])
    return canonical_json(content).encode("utf-8", "surrogatepass")


def seal_holds(seal: Mapping[str, Any], keys: sealkeys.Ring) -> bool:
    """Errors: UnknownKey."""
    return sealkeys.holds(sealkeys.SEAL, seal_bytes(seal), seal["key_id"], seal["mac"], keys)
