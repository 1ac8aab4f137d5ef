"""Conversations as anybody would draw them on paper: entries with parents, and a head. What the random test compares
the store with; it knows nothing of numbers' ranges, spans, queues or windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.sessions.entries import Message

MESSAGE, COMPACTION, SUMMARY = "message", "compaction", "branch_summary"
# What is read of an entry: id, number, role, content, payload, kind.
Read = tuple[str, int, str, str, Any, str]


@dataclass(eq=False)
class Node:
    """kept: of a compaction entry, what is still shown of what lies behind it. exact: false where Redis was away when
    it was put, so that what it follows in the database may be an earlier entry of its path."""

    entry_id: str
    seq: int
    role: str
    content: str
    payload: Any = None
    kind: str = MESSAGE
    parent: Node | None = None
    kept: list[Node] = field(default_factory=list)
    exact: bool = True

    @property
    def read(self) -> Read:
        return (self.entry_id, self.seq, self.role, self.content, self.payload, self.kind)

    def says(self, role: str, content: str, payload: Any) -> bool:
        return (self.role, self.content, self.payload) == (role, content, payload)


def read_of(message: Message) -> Read:
    return (
        message.entry_id, message.seq, message.role, message.content, message.payload, message.entry_type,
    )  # fmt: skip


def path_to(node: Node | None) -> list[Node]:
    """All that leads to an entry, oldest first."""
    found: list[Node] = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def shown_at(node: Node | None) -> tuple[Node | None, list[Node]]:
    """The compaction entry that stands in front, and what follows it."""
    path = path_to(node)
    for place in reversed(range(len(path))):
        if path[place].kind == COMPACTION:
            return path[place], [*path[place].kept, *path[place + 1 :]]
    return None, path


@dataclass(eq=False)
class Talk:
    """A session. floor: the last entry that it shares with what it was forked from. gaps: there was an outage, so
    numbers may be missing. Its entries: `own`, in the order of their numbers, on whatever branch."""

    session_id: str
    pk: int
    floor: Node | None = None
    head: Node | None = None
    own: list[Node] = field(default_factory=list)
    slots: dict[str, Any] = field(default_factory=dict)
    gaps: bool = False
    emptied: bool = False
    deleted: bool = False

    @property
    def last(self) -> int:
        return max([self.floor.seq if self.floor else 0, *(node.seq for node in self.own)])

    def find(self, entry_id: str) -> Node | None:
        """Along its tree an id stands for one entry, said here or shared."""
        return next((node for node in [*self.own, *path_to(self.floor)] if node.entry_id == entry_id), None)

    def reachable(self) -> list[Node]:
        """Every entry that the head may be moved to. One of its own hides a shared one of the same id."""
        mine = {node.entry_id for node in self.own}
        return [*(node for node in path_to(self.floor) if node.entry_id not in mine), *self.own]

    def put(self, node: Node) -> None:
        """Adds an entry after the head."""
        assert node.seq > self.last, f"number {node.seq} is not above {self.last}"
        assert self.gaps or node.seq == self.last + 1, f"number {node.seq} does not follow {self.last}"
        node.parent = self.head
        self.own.append(node)
        self.head = node

    def full(self) -> list[Read]:
        return [node.read for node in path_to(self.head)]

    def active(self) -> list[Read]:
        pin, rest = shown_at(self.head)
        return [node.read for node in ([pin, *rest] if pin else rest)]

    def window(self, size: int) -> list[Read]:
        """The newest messages by the rule of whole groups; the compaction entry where there is room."""
        pin, rest = shown_at(self.head)
        count = whole(rest, size)
        newest = rest[len(rest) - count :]
        return [node.read for node in ([pin, *newest] if pin and count < size else newest)]

    def page(self, limit: int, before: int | None, view: str, size: int) -> tuple[list[Read], int | None]:
        """One page, and `before_seq` of the one before it. size: of the window, which knows nothing before it."""
        pin, rest = shown_at(self.head) if view == "active" else (None, path_to(self.head))
        window = self.window(size)
        if view == "active" and before is None and limit == len(window) == size:
            older = window[0][5] != COMPACTION and (pin is not None or len(rest) > size)
            return window, window[0][1] if older else None
        rest = [node for node in rest if before is None or node.seq < before]
        page = rest[-limit:]
        left = rest[: -len(page)] if page else []
        lead = 0
        while left and lead < len(page) and page[lead].role == "tool" and call_of([*left, *page[: lead + 1]]) in left:
            lead += 1
        page = page[lead:] or page
        if left:
            return [node.read for node in page], page[0].seq
        if pin and len(page) < limit:
            return [node.read for node in [pin, *page]], None
        return [node.read for node in page], page[0].seq if pin else None

    def compacted(self, keep: int) -> tuple[int, list[Node]]:
        """How many messages a compaction covers that keeps so many, and those it keeps."""
        _, rest = shown_at(self.head)
        count = whole(rest, keep) if keep else 0
        return len(rest) - count, rest[len(rest) - count :]


def named(node: Node) -> list[str]:
    """Ids of the calls that a message makes or answers."""
    payload = node.read[4] or {}
    if not isinstance(payload, dict):
        return []
    return [call["id"] for call in payload.get("tool_calls", [])] or [
        payload[k] for k in payload if k == "tool_call_id"
    ]


def call_of(nodes: Sequence[Node]) -> Node | None:
    """The call that the last of these answers: the latest that names its id; else what it directly follows."""
    *earlier, result = nodes
    ids = named(result)
    if ids:
        for node in reversed(earlier):
            if node.role == "assistant" and ids[0] in named(node):
                return node
    while earlier and earlier[-1].role == "tool":
        earlier.pop()
    if earlier and earlier[-1].role == "assistant" and not (ids and named(earlier[-1])):
        return earlier[-1]
    return None


def whole(nodes: Sequence[Node], size: int) -> int:
    """How many of the newest a window of this size holds: back to every tool call whose results it would cut."""
    begin = max(0, len(nodes) - size)
    while True:
        calls = [call_of(nodes[: n + 1]) for n in range(begin, len(nodes)) if nodes[n].role == "tool"]
        first = min([begin, *(nodes.index(call) for call in calls if call is not None)])
        if first == begin:
            return len(nodes) - max(begin, len(nodes) - 200)
        begin = first
