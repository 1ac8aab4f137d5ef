"""Entries along a conversation's path, read from MySQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models.functions import Substr

from memory.sessions.entries import HEAD_CHARS, Entry
from memory.sessions.links import ASSISTANT, TOOL, Item, begin_whole, link_of, may_lack
from memory.sessions.models import AgentMessage, SessionBranch
from memory.sessions.owners import Owner
from memory.sessions.persist import existing
from memory.sessions.tree import Path, Span, Tree, Turn, within

# A window holds more than its size only to keep a tool call's results with it; append.lua knows the same number.
WINDOW_MOST = 200


def tree_of(owner: Owner) -> Tree:
    """The session's tree as it is now. Cost: 1 query."""
    pks = [owner.pk, *(pk for pk, _ in owner.lineage)]
    turns: dict[int, list[Turn]] = defaultdict(list)
    rows = SessionBranch.objects.filter(session_row__in=pks).order_by("id")
    for row in rows.only("session_row_id", "kind", "at_seq", "target_pk", "target_seq"):
        turns[row.session_row_id].append(Turn(row.kind, row.at_seq, row.target_pk, row.target_seq))
    return Tree(owner.pk, owner.lineage, turns)


def along(spans: Sequence[Span], *fields: str, limit: int, before: int | None = None) -> list[tuple[Any, ...]]:
    """Values of the newest entries of a path below a number, newest first. Cost: 1 query, one more for each older
    span that is needed."""
    found: list[tuple[Any, ...]] = []
    for pk, first, last in reversed(spans):
        if before is not None and first >= before:
            continue
        mine = AgentMessage.objects.filter(session_row_id=pk, seq__gte=first)
        mine = mine.filter(seq__lte=last) if before is None or last < before else mine.filter(seq__lt=before)
        found += mine.order_by("-seq").values_list(*fields)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


def upward(spans: Sequence[Span], *, above: int = 0, below: int | None = None) -> Iterator[AgentMessage]:
    """Entries of a path between two numbers (both excluded), oldest first, as heads: their content is cut to what a
    window holds of a large message."""
    for pk, first, last in spans:
        mine = AgentMessage.objects.filter(session_row_id=pk, seq__gte=max(first, above + 1), seq__lte=last)
        if below is not None:
            mine = mine.filter(seq__lt=below)
        head = mine.defer("content", "payload").annotate(head=Substr("content", 1, HEAD_CHARS))
        yield from head.order_by("seq").iterator(chunk_size=500)


def on_path(owner: Owner, entry_ids: Sequence[str]) -> dict[str, AgentMessage]:
    """Which of these entries MySQL has of the session or of what it shares, without their content: along its tree an
    entry id stands for one entry. Cost: 1 query, 2 more for a fork."""
    found = existing(owner.pk, entry_ids)
    missing = [entry_id for entry_id in entry_ids if entry_id not in found]
    if owner.lineage and missing:
        shared = tree_of(owner).at(*owner.lineage[0]).full
        rows = AgentMessage.objects.filter(session_row_id__in=[pk for pk, _ in owner.lineage], entry_id__in=missing)
        for row in rows.only("entry_id", "seq", "digest", "created_at", "session_row_id"):
            if within(shared, row.session_row_id, row.seq):
                found[row.entry_id] = row
    return found


def shared_ids(owner: Owner, tree: Tree, limit: int) -> list[tuple[str, int, Any, str]]:
    """Entry id, number, time and digest of the newest entries that a fork shares; none for a session that is no fork,
    and no query."""
    if not owner.lineage:
        return []
    spans = tree.at(*owner.lineage[0]).full
    return along(spans, "entry_id", "seq", "created_at", "digest", limit=limit)  # type: ignore[return-value]


def lowest(path: Path) -> int | None:
    """The number of a path's first entry. Cost: 1 query, more only where a span is empty."""
    for pk, first, last in path.full:
        mine = AgentMessage.objects.filter(session_row_id=pk, seq__gte=first, seq__lte=last)
        seq = mine.order_by("seq").values_list("seq", flat=True).first()
        if seq is not None:
            return seq
    return None


def head_of(path: Path) -> tuple[str, int, int]:
    """Entry id, session and number of a path's last entry in MySQL; ('', 0, 0) where it has none. Cost: 1 query."""
    found = along(path.full, "entry_id", "session_row_id", "seq", limit=1)
    return found[0] if found else ("", 0, 0)  # type: ignore[return-value]


def entry_of_row(row: AgentMessage) -> Entry:
    return Entry(
        row.session_row_id, row.tenant, row.agent, row.session_id, row.entry_id, row.seq, row.role, row.content,
        row.payload, row.size, row.digest, row.trace_id, row.created_at, "", "", row.parent_entry_id, row.entry_type,
    )  # fmt: skip


# Payloads that are read for the ids of tool calls in them: a larger one is content, and names none.
_LINK_BYTES = 1024 * 1024

_Key = tuple[int, str, int | None]  # number, role, key of the row (None: not in MySQL yet)


def items_of(keys: Sequence[tuple[int, str, int | None]], waiting: Sequence[Entry] = ()) -> list[Item]:
    """Roles and links of entries. keys: number, role and row. Cost: 1 query where results are among them."""
    links: dict[int, str] = {}
    if any(role == TOOL for _, role, _ in keys):
        rows = AgentMessage.objects.filter(
            pk__in=[pk for _, role, pk in keys if pk is not None and role in (ASSISTANT, TOOL)],
            payload__isnull=False,
            size__lt=_LINK_BYTES,
        )
        links = {pk: link_of(role, payload) for pk, role, payload in rows.values_list("pk", "role", "payload")}
    late = {entry.seq: link_of(entry.role, entry.payload) for entry in waiting}
    return [(role, late.get(seq, "") if pk is None else links.get(pk, "")) for seq, role, pk in keys]


def pinned(path: Path) -> Entry | None:
    """The compaction entry that stands in front of what is shown. Cost: 1 query where there is one."""
    if path.pin is None:
        return None
    row = AgentMessage.objects.filter(session_row_id=path.pin[0], seq=path.pin[1]).first()
    return None if row is None else entry_of_row(row)


def head_behind(path: Path, newest: Sequence[Entry]) -> str:
    """What the next message follows, where that is not the last entry of a window: a compaction entry that nothing has
    followed yet, which stands first in the window, or not in it. '' elsewhere. newest: the window.

    Cost: 1 query where the compaction entry has no room in the window.
    """
    if path.pin is None or not newest or newest[-1].seq >= path.pin[1]:
        return ""
    pin = newest[0] if newest[0].seq == path.pin[1] else pinned(path)
    return "" if pin is None else pin.entry_id


def not_in_mysql(entries: Sequence[Entry]) -> list[Entry]:
    """Those that MySQL has under no number: the same message may have come by another way. Cost: 1 query a session."""
    ids: dict[int, list[str]] = defaultdict(list)
    for entry in entries:
        ids[entry.session_pk].append(entry.entry_id)
    have = {(pk, entry_id) for pk, wanted in ids.items() for entry_id in existing(pk, wanted)}
    return [entry for entry in entries if (entry.session_pk, entry.entry_id) not in have]


def whole_window(path: Path, size: int, waiting: Sequence[Entry] = ()) -> list[_Key]:
    """Number, role and row of the newest entries that are shown, newest first: `size` of them, and further back up to a
    tool call whose results are among them, at most WINDOW_MOST. Cost: 1 query, up to 3 more where results are."""

    def newest(limit: int) -> list[_Key]:
        keys: list[_Key] = [(seq, role, pk) for seq, role, pk in along(path.view, "seq", "role", "pk", limit=limit)]
        return sorted([*keys, *((one.seq, one.role, None) for one in waiting)], key=lambda key: -key[0])

    keys = newest(size + 1)
    kept = keys[:size][::-1]
    if len(keys) <= size or not may_lack(items_of(kept, waiting)):
        return keys[:size]
    keys = newest(WINDOW_MOST)[:WINDOW_MOST]
    items = items_of(keys[::-1], waiting)
    return keys[: len(items) - begin_whole(items, len(items) - size, WINDOW_MOST)]


def window_of(path: Path, size: int, queued: Sequence[Entry] = ()) -> list[Entry]:
    """The newest entries that are shown, oldest first, as many as a window holds.

    queued: entries that MySQL does not have yet. Cost: 2 queries, 1 more where a compaction entry fits in, or a tool
    call far back.
    """
    waiting = [entry for entry in queued if path.shows(entry.session_pk, entry.seq)]
    wanted = whole_window(path, size, waiting)
    rows = AgentMessage.objects.filter(pk__in=[pk for _, _, pk in wanted if pk is not None])
    lowest_seq = wanted[-1][0] if wanted else 0
    entries = [entry_of_row(row) for row in rows] + [one for one in waiting if one.seq >= lowest_seq]
    entries.sort(key=lambda entry: entry.seq)
    if len(wanted) < size:
        pin = pinned(path)
        if pin is not None:
            entries.insert(0, pin)
    return entries
