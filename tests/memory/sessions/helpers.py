"""A small cast: Alice's agent writes; Bob's is somebody else's."""

from __future__ import annotations

import uuid
from typing import Any

from config.base import redis as base_redis
from config.base.keys import prefixed
from guard.access.services import Caller
from memory.sessions import selectors, services
from memory.sessions.drain import drain_batch
from memory.sessions.entries import NewMessage, Receipt
from memory.sessions.models import AgentMessage
from memory.sessions.owners import Owner, find_owner

ALICE = Caller("default", "customer", "alice")
BOB = Caller("default", "customer", "bob")


def make_session(caller: Caller = ALICE, session_id: str | None = None) -> str:
    opened = services.open_session(caller=caller, session_id=session_id or f"chat-{uuid.uuid4().hex}")
    return opened.owner.session_id


def make_message(content: str = "hello", role: str = "user", entry_id: str | None = None, payload: Any = None) -> Any:
    return NewMessage(role, content, entry_id, payload)


def append(session_id: str, *contents: str, caller: Caller = ALICE, durability: str = "async") -> list[Receipt]:
    """Appends users' messages without entry ids."""
    return put(session_id, *(make_message(content) for content in contents), caller=caller, durability=durability)


def put(session_id: str, *messages: NewMessage, caller: Caller = ALICE, durability: str = "async") -> list[Receipt]:
    return services.append_messages(
        caller=caller, session_id=session_id, messages=messages, durability=durability
    ).receipts


def owner(session_id: str) -> Owner:
    found = find_owner("default", session_id)
    assert found is not None
    return found


def stored(session_id: str) -> list[tuple[int, str]]:
    """What MySQL has: number and content, in order."""
    rows = AgentMessage.objects.filter(session_row_id=owner(session_id).pk).order_by("seq")
    return list(rows.values_list("seq", "content"))


def remove_keys(pattern: str) -> int:
    """Deletes this test's keys that match: what expiry or a loss would have done."""
    client = base_redis.state()
    names = list(client.scan_iter(prefixed(pattern), count=1000))
    return client.delete(*names) if names else 0


def empty_redis() -> None:
    """As FLUSHALL would leave it, within this test's prefix."""
    remove_keys("*")


def let_expire(session_id: str) -> None:
    """As after two hours of silence."""
    assert base_redis.state().delete(*owner(session_id).keys)


def contents(session_id: str, limit: int = 200) -> list[str]:
    """What Alice reads."""
    return [m.content for m in selectors.read_messages(caller=ALICE, session_id=session_id, limit=limit).messages]


def drain_everything() -> None:
    """Also what other drains hold: claimed at once."""
    while drain_batch(idle_ms=0).batches:
        pass
