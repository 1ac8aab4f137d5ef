"""The tree of a conversation as people and programs look at it: every entry, without its content."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from config.base.errors import DomainError
from guard.access.services import Caller
from memory.sessions.models import AgentMessage
from memory.sessions.owners import admit
from memory.sessions.paths import WINDOW_MOST, head_of
from memory.sessions.restructuring import Standing, restructure
from memory.sessions.tree import END, within


@dataclass(frozen=True, slots=True)
class Node:
    """An entry without its content. session_id: where it was said (another session's for what a fork shares).
    size: bytes. active: it leads to the head."""

    entry_id: str
    parent_entry_id: str | None
    session_id: str
    seq: int
    entry_type: str
    role: str
    size: int
    created_at: datetime
    active: bool


@dataclass(frozen=True, slots=True)
class TreePage:
    """head: entry id and number, None for an empty session. next: `after_seq` of the next page."""

    head: tuple[str, int] | None
    items: list[Node]
    next: int | None


def read_tree(*, caller: Caller, session_id: str, limit: int = 100, after_seq: int = 0) -> TreePage:
    """Entries of a session's tree, by number: on all its branches, and those shared with what it was forked from.

    What is still queued is committed first, so that nothing is missing (Redis away: MySQL alone).
    Cost: 1 round trip and about 6 queries. Errors: those of `admit`; INVALID_REQUEST, SESSION_DELETED.
    """
    if not 1 <= limit <= WINDOW_MOST or not 0 <= after_seq <= END:
        raise DomainError(
            "INVALID_REQUEST",
            f"limit {limit} is outside 1..{WINDOW_MOST}, or after_seq {after_seq} is outside 0..{END}",
        )
    owner = admit(caller, session_id, "read")

    def look(standing: Standing) -> TreePage:
        tree, path = standing.tree, standing.path
        shared = tree.at(*owner.lineage[0]).full if owner.lineage else ()
        found: list[AgentMessage] = []
        for pk, first, last in (*shared, (owner.pk, tree.floor + 1, END)):
            if len(found) <= limit:
                rows = AgentMessage.objects.filter(session_row_id=pk, seq__gte=max(first, after_seq + 1), seq__lte=last)
                found += rows.defer("content", "payload").order_by("seq")[: limit + 1 - len(found)]
        items = [
            Node(
                row.entry_id, row.parent_entry_id or None, row.session_id, row.seq, row.entry_type, row.role, row.size,
                row.created_at, within(path.full, row.session_row_id, row.seq),
            )
            for row in found[:limit]
        ]  # fmt: skip
        head_id, _, head_seq = head_of(path)
        following = items[-1].seq if len(found) > limit else None
        return TreePage((head_id, head_seq) if head_id else None, items, following)

    return restructure(owner, look, moves=False)
