"""The context of a session: what an agent is doing in it right now. It lives in Redis, field by field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from config.base.clock import from_micros
from config.base.errors import DomainError

MAX_FIELD_BYTES = 64 * 1024
MAX_SLOTS = 200
MAX_SLOT_NAME = 64
_SLOT = "slot:"


class Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


@dataclass(frozen=True, slots=True)
class Context:
    """version: `{opened_at in us}-{n}`; it changes with every change of a field, not with messages.

    reopened: the context before had gone (its time had run out, or Redis lost it), and this is a clean one. Told once:
    to the first who reads or changes it, whatever call opened it.
    """

    session_id: str
    version: str
    opened_at: datetime
    updated_at: datetime
    intent: Any = None
    slots: dict[str, Any] = field(default_factory=dict)
    step: Any = None
    summary: Any = None
    last_tool_result: Any = None
    reopened: bool = False


def slot_field(name: str) -> str:
    """The hash field of a slot. Errors: INVALID_REQUEST for an empty, overlong or unprintable name."""
    if not isinstance(name, str) or not name or len(name) > MAX_SLOT_NAME or not name.isprintable():
        raise DomainError(
            "INVALID_REQUEST", f"slots: the name {str(name)[:40]!r} must be 1 to {MAX_SLOT_NAME} printable characters"
        )
    return _SLOT + name


def read_context(session_id: str, flat: Sequence[str]) -> Context:
    """HGETALL's answer as a context."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))

    def value(name: str) -> Any:
        return json.loads(fields[name]) if name in fields else None

    return Context(
        session_id=session_id,
        version=f"{fields['opened_at']}-{fields['version']}",
        intent=value("intent"),
        slots={name.removeprefix(_SLOT): json.loads(text) for name, text in fields.items() if name.startswith(_SLOT)},
        step=value("step"),
        summary=value("summary"),
        last_tool_result=value("last_tool_result"),
        opened_at=from_micros(int(fields["opened_at"])),
        updated_at=from_micros(int(fields["updated_at"])),
        reopened="again" in fields,
    )
