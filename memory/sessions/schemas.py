"""What goes in and out of the sessions, over HTTP; what goes in is checked by the same in process."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from memory.sessions.limits import limits
from memory.sessions.selectors import MAX_LIMIT


class Strict(Schema):
    model_config = ConfigDict(extra="forbid")


class ForkIn(Strict):
    """entry_id: the last entry to share; the head if absent. session_id: of the new session; made if absent."""

    entry_id: StrictStr | None = None
    session_id: StrictStr | None = None


class NavigateIn(Strict):
    """summary: text of a branch summary; summarise: have one made. Neither: the head is moved, nothing is written."""

    entry_id: StrictStr
    summary: Annotated[StrictStr, Field(max_length=20_000)] | None = None
    summarise: StrictBool = False


class CompactIn(Strict):
    """keep: messages that stay; the window's size if absent. summary: made if absent. entry_id: makes a repeat
    harmless."""

    keep: StrictInt | None = None
    summary: Annotated[StrictStr, Field(max_length=20_000)] | None = None
    entry_id: StrictStr | None = None


class OpenIn(Strict):
    session_id: StrictStr | None = None
    customer_id: StrictStr | None = None


class MessageIn(Strict):
    role: StrictStr
    content: StrictStr
    entry_id: StrictStr | None = None
    payload: Any = None


class AppendIn(Strict):
    messages: list[MessageIn]
    durability: Literal["async", "sync"] = "async"


def _within_summary(text: str) -> str:
    if len(text) > limits.summary_chars:
        raise ValueError(f"it is {len(text)} characters; the limit is {limits.summary_chars}")
    return text


class ContextIn(Strict):
    """What is absent stays; null removes. Slots are merged name by name.

    summary: your own, at most SESSION_SUMMARY_CHARS characters (1200); null: it is made anew of what left the window.
    """

    intent: Annotated[StrictStr, Field(max_length=1000)] | None = None
    step: StrictInt | Annotated[StrictStr, Field(max_length=1000)] | None = None
    last_tool_result: Any = None
    summary: Annotated[StrictStr, AfterValidator(_within_summary)] | None = None
    slots: dict[str, Any] | None = None


class SessionOut(Schema):
    session_id: str
    agent: str
    actor_id: str
    customer_id: str | None
    created_at: str


class ReceiptOut(Schema):
    entry_id: str
    seq: int
    state: Literal["queued", "committed"]


class ReceiptsOut(Schema):
    receipts: list[ReceiptOut]


class MessageOut(Schema):
    entry_id: str
    seq: int
    role: str
    content: str
    payload: Any
    created_at: str


class EntryOut(MessageOut):
    entry_type: Literal["compaction", "branch_summary"]


class MessagesOut(Schema):
    messages: list[MessageOut]
    next: int | None
    source: Literal["window", "database"]


class ForkedFromOut(Schema):
    session_id: str
    entry_id: str
    seq: int


class ForkOut(SessionOut):
    forked_from: ForkedFromOut


class HeadOut(Schema):
    entry_id: str
    seq: int


class NavigateOut(Schema):
    head: HeadOut
    branch_summary: EntryOut | None


class CompactOut(Schema):
    compacted: int
    first_kept_entry_id: str | None
    entry: EntryOut | None


class NodeOut(Schema):
    entry_id: str
    parent_entry_id: str | None
    session_id: str
    seq: int
    entry_type: Literal["message", "compaction", "branch_summary"]
    role: str
    size: int
    created_at: str
    active: bool


class TreeOut(Schema):
    head: HeadOut | None
    items: list[NodeOut]
    next: int | None


class ContextOut(Schema):
    session_id: str
    version: str
    intent: str | None
    slots: dict[str, Any]
    step: int | str | None
    summary: Any
    last_tool_result: Any
    opened_at: str
    updated_at: str
    reopened: bool


class ReadIn(Strict):
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)
    before_seq: int | None = Field(None, ge=1, le=2**63 - 1)
    view: Literal["active", "full"] = "active"


class TreeIn(Strict):
    limit: int = Field(100, ge=1, le=MAX_LIMIT)
    after_seq: int = Field(0, ge=0, le=2**63 - 1)
