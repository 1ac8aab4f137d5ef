"""Messages that left the window are folded into the context's `summary`: when the context is read and some have left
since. So an append pays nothing for it, and a summary that Redis lost is made again out of MySQL."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from django.db import DatabaseError

from config.base import redis as base_redis
from config.base.clock import to_micros
from config.base.fields import canonical_json
from config.base.redis import RedisUnavailable, Script
from memory.sessions.entries import HEAD_CHARS, Message
from memory.sessions.models import AgentMessage
from memory.sessions.outage import outage
from memory.sessions.owners import Owner
from memory.sessions.paths import along, not_in_mysql, pinned, tree_of, upward
from memory.sessions.reopen import undrained
from memory.sessions.summaries import summarise
from memory.sessions.tree import Path

logger = logging.getLogger(__name__)

_fold = Script.beside(__file__, "fold")

# A summary that is made anew reads no more than so many messages: those before the window.
REACH = 400


def head_message(row: AgentMessage) -> Message:
    """A row of `upward` as a message with the head of its content, without payload."""
    head = str(vars(row)["head"])  # annotated
    return Message(row.entry_id, row.seq, row.role, head, None, to_micros(row.created_at), 0, row.entry_type)


def _left(owner: Owner, path: Path, above: int, below: int) -> list[Message]:
    """What is shown of the path between two numbers (both excluded): from the stream first, then from MySQL."""
    waiting = undrained(owner, shared=True)
    queued = not_in_mysql([e for e in waiting if above < e.seq < below and path.shows(e.session_pk, e.seq)])
    found = {row.seq: head_message(row) for row in upward(path.view, above=above, below=below)}
    for entry in queued:
        at_us = to_micros(entry.created_at)
        late = Message(entry.entry_id, entry.seq, entry.role, entry.content[:HEAD_CHARS], None, at_us)
        found.setdefault(entry.seq, late)
    return [found[seq] for seq in sorted(found)]


def with_summary(owner: Owner, flat: Sequence[str], shown: str, pin: str, first: str) -> Sequence[str]:
    """The context's fields with a summary of all that is shown before the window's first message.

    flat: HGETALL's answer; shown, pin, first: see context.lua. Nothing has left since the last time: no cost. Else
    3 round trips and 2 queries, 1 more the first time and 1 more for a condensed conversation. MySQL away, or the
    summariser failing: the summary that is there.
    """
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    folded = int(fields.get("folded") or 0)
    if not shown and not pin:
        return flat
    below = int(shown or pin)
    if folded >= below or (not folded and not pin and first and below <= int(first)):
        return flat
    previous = json.loads(fields["summary"]) if "summary" in fields else ""
    try:
        path = tree_of(owner).head()
        above = folded - 1
        if not folded:
            above = 0
            entry = pinned(path)
            previous = entry.content if entry is not None else previous
            oldest = along(path.view, "seq", limit=REACH, before=below)
            above = oldest[-1][0] - 1 if len(oldest) == REACH else 0
        left = _left(owner, path, above, below)
    except DatabaseError as error:
        logger.warning("the summary waits for the database: %s", type(error).__name__)
        return flat
    text = canonical_json(summarise(previous, left))
    try:
        _fold(base_redis.state(), [owner.keys[0]], [fields["gen"], fields.get("folded", ""), below, text])
    except RedisUnavailable:
        outage.note("summaries not kept")
    fields["summary"] = text
    return [part for pair in fields.items() for part in pair]
