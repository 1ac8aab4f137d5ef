"""A message on its way: what callers give, how it stands in Redis, and back.

In Redis a message is one JSON object, written here and never by cjson (which breaks large numbers, empty arrays and
deep nesting): Lua only adds `,"seq":N,"at":us}` at its end. A message over INLINE_BYTES stands in the window with the
head of its content and `"cut"`, its true size; the stream and MySQL hold it whole. In the window `id` stands for
`entry_id`, `at` counts from when the session was made, and no payload is no field: twenty recorded messages then fit
into 3.5 KiB, and the next size that the allocator has is 4.

It is read back by msgspec: a third of the time that json takes, and the same values (integers of any size, floats to
the last bit, text with NUL, any depth that got in); a test compares the two.
"""

from __future__ import annotations

import binascii
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import msgspec

from config.base.clock import from_micros, to_micros
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.ids import ID_PATTERN, check_id, new_id
from guard.access.models import Agent
from memory.sessions.limits import limits
from memory.sessions.links import link_of
from memory.sessions.models import AgentMessage

ROLES = frozenset(AgentMessage.Role.values)
INLINE_BYTES = 16 * 1024
HEAD_CHARS = 1024
# Python reads and writes JSON recursively; a payload that got in must come out again from any depth of the stack.
MAX_PAYLOAD_DEPTH = 512

QUEUED = "queued"
COMMITTED = "committed"
STATE_LETTER = {QUEUED: "q", COMMITTED: "c"}
STATE_NAME = {letter: state for state, letter in STATE_LETTER.items()}


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a caller puts. entry_id: unique in the session; makes a repeat harmless."""

    role: str
    content: str
    entry_id: str | None = None
    payload: Any = None


# Structs where one is made for each message of each call: made in a tenth of a frozen dataclass's time. gc=False: what
# they hold came out of JSON or is text, so no cycle goes through them.


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """state: `committed` is in MySQL; `queued` survives the death of any process and is there within 5 s."""

    entry_id: str
    seq: int
    state: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it is read, and as a window item names its fields. at_us: since 1970. cut: 0, or the true size in
    bytes where this is only its head (never given out so).
    link: the tool calls that it makes or answers (links.py). entry_type: `message`, or `compaction` and
    `branch_summary` for what was written in place of others."""

    entry_id: str = msgspec.field(name="id")
    seq: int
    role: str
    content: str
    payload: Any = None
    at_us: int = msgspec.field(name="at", default=0)
    cut: int = 0
    entry_type: str = "message"
    link: str = ""

    @property
    def created_at(self) -> datetime:
        """Made when it is asked for: twenty of them cost as much as a round trip."""
        return from_micros(self.at_us)


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A checked message, ready for Redis (`body`, `head`) and for MySQL.

    origin: MADE, GIVEN or GIVEN_BACK; payload: canonical JSON; size: content and payload in UTF-8, bytes.
    """

    entry_id: str
    origin: str
    role: str
    content: str
    payload: str | None
    digest: str
    size: int
    body: str
    head: str


# Where an entry id comes from, as append.lua is told.
MADE, GIVEN, GIVEN_BACK = "0", "1", "2"


def made_entry_id() -> str:
    """A UUIDv7 whose last four digits are a checksum of the rest.

    An id that was made for a call cannot be a repeat, so no receipt of it is kept in Redis: that halves what a session
    takes there. Should somebody give it back all the same, the checksum tells that the stream and MySQL must be
    asked. Of ids made elsewhere one in 65,536 passes too, and only costs that question.
    """
    start = new_id()[:32]
    return f"{start}{zlib.crc32(start.encode()) & 0xFFFF:04x}"


def may_be_made(entry_id: str) -> bool:
    """Whether `made_entry_id` may have made this id."""
    return len(entry_id) == 36 and entry_id[32:] == f"{zlib.crc32(entry_id[:32].encode()) & 0xFFFF:04x}"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A numbered message that may or may not be in MySQL yet. stream_id: its place in the stream, '' if not there.
    parent: the entry that it follows, '' for a session's first. payload_json: the payload's canonical spelling as the
    stream has it; '' where it did not come from there, or where there is none."""

    session_pk: int
    tenant: str
    agent: str
    session_id: str
    entry_id: str
    seq: int
    role: str
    content: str
    payload: Any
    size: int
    digest: str
    trace_id: str
    created_at: datetime
    stream_id: str = ""
    raw: str = ""
    parent: str = ""
    entry_type: str = "message"
    payload_json: str = ""

    @property
    def stored_payload(self) -> str | None:
        """The payload as the database keeps it; None for none."""
        if self.payload_json:
            return self.payload_json
        return None if self.payload is None else canonical_json(self.payload)

    def row(self) -> AgentMessage:
        return AgentMessage(
            session_row_id=self.session_pk,
            tenant=self.tenant,
            agent=self.agent,
            session_id=self.session_id,
            entry_id=self.entry_id,
            parent_entry_id=self.parent,
            seq=self.seq,
            entry_type=self.entry_type,
            role=self.role,
            content=self.content,
            payload=self.payload,
            size=self.size,
            digest=self.digest,
            trace_id=self.trace_id,
            created_at=self.created_at,
        )


_value = msgspec.json.Decoder()


def json_text(value: Any, name: str) -> tuple[str, int]:
    """A value's canonical JSON, and its bytes. What would not come back as it is, is refused: a tuple, a key that is no
    text, half of a surrogate pair. Errors: INVALID_REQUEST."""
    try:
        text = canonical_json(value)
        encoded = text.encode()
        deep = text.count("[") + text.count("{") > MAX_PAYLOAD_DEPTH and _depth(value) > MAX_PAYLOAD_DEPTH
        same = deep or _value.decode(encoded) == value
    except RecursionError:
        raise DomainError("INVALID_REQUEST", f"{name} is nested deeper than {MAX_PAYLOAD_DEPTH}") from None
    except UnicodeEncodeError:
        raise DomainError("INVALID_REQUEST", f"{name} holds half of a surrogate pair, which is no text") from None
    except (ValueError, TypeError) as error:
        raise DomainError("INVALID_REQUEST", f"{name} is not JSON: {type(error).__name__}: {error}"[:200]) from None
    if deep:
        raise DomainError("INVALID_REQUEST", f"{name} is nested deeper than {MAX_PAYLOAD_DEPTH}")
    if not same:
        raise DomainError("INVALID_REQUEST", f"{name} would come back as another value: use lists, and text for keys")
    return text, len(encoded)


def payload_text(payload: Any, where: str) -> str:
    """A payload's canonical JSON. Errors: INVALID_REQUEST."""
    return json_text(payload, f"{where}.payload")[0]


def _depth(value: Any) -> int:
    """Levels of arrays and objects, counted without recursion."""
    deepest, level = 0, [value]
    while level:
        inner: list[Any] = []
        containers = 0
        for item in level:
            if isinstance(item, dict):
                containers += 1
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                containers += 1
                inner.extend(item)
        if containers:
            deepest += 1
        level = [item for item in inner if isinstance(item, dict | list | tuple)]
    return deepest


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def content_digest(role: str, content: bytes, payload: str | None) -> str:
    """22 characters that stand for what a repeat must equal. JSON text holds no NUL, so the parts cannot run over."""
    made = hashlib.blake2b(f"{role}\0{payload or ''}\0".encode(), digest_size=16)
    made.update(content)
    return binascii.b2a_base64(made.digest())[:22].translate(_URL_SAFE).decode()


def _prepare_one(message: NewMessage, index: int) -> Prepared:
    role, content, entry_id = message.role, message.content, message.entry_id
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(AgentMessage.Role.values)
        raise DomainError("INVALID_REQUEST", f"messages.{index}.role {str(role)[:40]!r} does not exist; use {known}")
    if not isinstance(content, str):
        raise DomainError("INVALID_REQUEST", f"messages.{index}.content is {type(content).__name__}, not text")
    origin = MADE
    if entry_id is None:
        entry_id = made_entry_id()
    else:
        check_id(f"messages.{index}.entry_id", entry_id)
        origin = GIVEN_BACK if may_be_made(entry_id) else GIVEN
    payload, size = None, 0
    if message.payload is not None:
        payload, size = json_text(message.payload, f"messages.{index}.payload")
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        raise DomainError(
            "INVALID_REQUEST", f"messages.{index}.content holds half of a surrogate pair, which is no text"
        ) from None
    size += len(encoded)
    if size > limits.message_bytes:
        raise DomainError("MESSAGE_TOO_LARGE", f"messages.{index} is {size} bytes; the limit is {limits.message_bytes}")
    link = link_of(role, message.payload)
    start = f'{{"entry_id":"{entry_id}","role":"{role}",{_link(link)}"content":'
    body = (
        f"{start}{encode_basestring(content)}"
        if payload is None
        else (f'{start}{encode_basestring(content)},"payload":{payload}')
    )
    head = ""
    if size > INLINE_BYTES:
        head = f'{start}{encode_basestring(content[:HEAD_CHARS])},"cut":{size}'
    digest = content_digest(role, encoded, payload)
    return Prepared(entry_id, origin, role, content, payload, digest, size, body, head)


def prepare(messages: Sequence[NewMessage]) -> list[Prepared]:
    """Checks a whole batch before anything is written.

    Errors: EMPTY_BATCH, BATCH_TOO_LARGE, INVALID_ID, INVALID_REQUEST (422), MESSAGE_TOO_LARGE (413),
    ENTRY_CONFLICT (409) when the batch gives one entry id two contents.
    """
    if not messages:
        raise DomainError("EMPTY_BATCH")
    if len(messages) > limits.batch_messages:
        raise DomainError("BATCH_TOO_LARGE", f"{len(messages)} messages; the limit is {limits.batch_messages}")
    prepared: list[Prepared] = []
    digests: dict[str, str] = {}
    total = 0
    for index, message in enumerate(messages):
        one = _prepare_one(message, index)
        prepared.append(one)
        total += one.size
        if one.origin is not MADE and digests.setdefault(one.entry_id, one.digest) != one.digest:
            raise conflict(one.entry_id)
    if total > limits.body_bytes:
        raise DomainError("BODY_TOO_LARGE", f"the batch is {total} bytes; the limit is {limits.body_bytes}")
    return prepared


def conflict(entry_id: str) -> DomainError:
    return DomainError(
        "ENTRY_CONFLICT",
        f"entry {entry_id!r} exists in this session with other content; nothing of the batch was written",
        entry_id=entry_id,
    )


def receipt_value(seq: int, created_at_us: int, state: str, digest: str) -> str:
    """A receipt as `ids` keeps it; append.lua writes and reads the same."""
    return f"{seq}:{created_at_us}:{STATE_LETTER[state]}:{digest}"


def _link(link: str) -> str:
    return f'"link":"{link}",' if link else ""


def window_item(entry: Entry, born_us: int) -> str:
    """An entry as the window holds it. born_us: when the session was made; `at` counts from there."""
    link = _link(link_of(entry.role, entry.payload))
    start = f'{{"id":"{entry.entry_id}","role":"{entry.role}",{link}"content":'
    if entry.entry_type != "message":
        start = f'{{"id":"{entry.entry_id}","role":"{entry.role}","entry_type":"{entry.entry_type}","content":'
    tail = f',"seq":{entry.seq},"at":{to_micros(entry.created_at) - born_us}}}'
    if entry.size > INLINE_BYTES:
        return f'{start}{encode_basestring(entry.content[:HEAD_CHARS])},"cut":{entry.size}{tail}'
    payload = "" if entry.payload is None else f',"payload":{canonical_json(entry.payload)}'
    return f"{start}{encode_basestring(entry.content)}{payload}{tail}"


_window = msgspec.json.Decoder(list[Message])


def read_items(items: Sequence[bytes], born_us: int) -> list[Message]:
    """Window items as messages; `cut` is set on those that the window holds cut short."""
    messages = _window.decode(b"[" + b",".join(items) + b"]")
    for message in messages:
        msgspec.structs.force_setattr(message, "at_us", message.at_us + born_us)
    return messages


def stream_ident(session_pk: int, tenant: str, agent: str, session_id: str) -> str:
    return f"{session_pk} {tenant} {agent} {session_id}"


class _Body(msgspec.Struct, gc=False):
    """A message in the stream. The payload's text is kept as it stands there: `prepare` wrote it in its canonical
    spelling, and the digest was made of that."""

    entry_id: str
    seq: int
    role: str
    content: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    at_us: int = msgspec.field(name="at", default=0)


_body = msgspec.json.Decoder(_Body)
_AGENTS = frozenset(Agent.values)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def _read_ident(ident: str) -> tuple[int, str, str, str]:
    """Key, tenant, agent and session id out of `stream_ident`. Errors: ValueError."""
    key, tenant, agent, session_id = ident.split(" ")
    pk = int(key) if key.isascii() and key.isdigit() else 0
    if agent not in _AGENTS or not 0 < pk < 2**63 or not ID_PATTERN.match(tenant) or not ID_PATTERN.match(session_id):
        raise ValueError("not of this room's making")  # a column would refuse it, and so would the dead letters'
    return pk, tenant, agent, session_id


def read_entry(stream_id: str, fields: dict[str, str]) -> Entry:
    """An entry of the stream. Errors: ValueError, KeyError, TypeError or RecursionError when it cannot be read."""
    return read_parts(stream_id, fields["k"], fields["g"], fields["x"], fields["m"], fields.get("p", ""))


def read_parts(stream_id: str, ident: str, digest: str, trace_id: str, message: str, parent: str) -> Entry:
    """The same of an entry's fields k, g, x, m and p. Text that was not UTF-8 holds lone surrogates, and is refused."""
    pk, tenant, agent, session_id = _read_ident(ident)
    if len(digest) > 24 or len(trace_id) > 32 or not (digest.isascii() and trace_id.isascii()):
        raise ValueError("not of this room's making")
    try:
        body = _body.decode(message)
        raw = bytes(body.payload)
        payload = None if raw == b"null" else _value.decode(raw)  # also for what is wrong inside it
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    if body.role not in ROLES:
        raise ValueError("not a message")
    if not 0 < body.seq < 2**63:
        raise ValueError("a number that no column holds")
    if body.at_us <= 0:
        raise ValueError("no time")
    if not ID_PATTERN.match(body.entry_id):
        check_id("entry_id", body.entry_id)
    if parent and not ID_PATTERN.match(parent):
        check_id("parent", parent)
    return Entry(
        pk,
        tenant,
        agent,
        session_id,
        body.entry_id,
        body.seq,
        body.role,
        body.content,
        payload,
        len(body.content.encode()) + (0 if payload is None else len(raw)),
        digest,
        trace_id,
        _EPOCH + timedelta(microseconds=body.at_us),
        stream_id,
        message,
        parent,
        payload_json="" if payload is None else raw.decode(),
    )
