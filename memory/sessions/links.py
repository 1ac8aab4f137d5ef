"""Which tool results answer which call. Pure; append.lua goes by the same rules.

A call names its results by ids in the payloads: an assistant's `tool_calls` (`id` or `call_id` of each) or `call_id`, a
tool's `tool_call_id`, `tool_use_id` or `call_id`. Where they name none, results answer the assistant's message that
they directly follow. Other messages may stand between a call and its results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

ASSISTANT, TOOL = "assistant", "tool"
_RESULT_NAMES = ("tool_call_id", "tool_use_id", "call_id")
# An assistant's message names no more calls than this.
_MOST = 128

Item = tuple[str, str]  # role and link


def _short(name: str) -> str:
    """Eight hex digits: ids may hold anything, a link must be found with plain text search."""
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()


def link_of(role: str, payload: Any) -> str:
    """The ids of the calls that a message makes or answers, one after the other with spaces; '' where it names none."""
    if not isinstance(payload, dict) or role not in (ASSISTANT, TOOL):
        return ""
    names: list[Any] = []
    if role == TOOL:
        names = [payload[name] for name in _RESULT_NAMES if name in payload][:1]
    else:
        calls = payload.get("tool_calls")
        if isinstance(calls, list):
            for one in calls[:_MOST]:
                if isinstance(one, dict):
                    names += [one[name] for name in ("id", "call_id") if name in one]
        if "call_id" in payload:
            names.append(payload["call_id"])
    return " ".join(_short(name) for name in names if isinstance(name, str) and name)


def call_of(items: Sequence[Item], place: int) -> int | None:
    """Where the call of a result stands; None where there is none before it. items: oldest first."""
    link = items[place][1]
    if link:
        for other in range(place - 1, -1, -1):
            if items[other][0] == ASSISTANT and link in items[other][1].split(" "):
                return other
    other = place - 1
    while other >= 0 and items[other][0] == TOOL:
        other -= 1
    if other >= 0 and items[other][0] == ASSISTANT and not (link and items[other][1]):
        return other
    return None


def begin_whole(items: Sequence[Item], begin: int, most: int) -> int:
    """Where a window begins that is to begin at `begin` at the latest: no result in it is without its call, unless it
    would hold more than `most`. items: oldest first."""
    place = len(items) - 1
    while place >= begin:
        if items[place][0] == TOOL:
            call = call_of(items, place)
            if call is not None and call < begin:
                begin = call
        place -= 1
    return max(begin, len(items) - most)


def may_lack(items: Sequence[Item]) -> bool:
    """Whether a result among these may answer a call before them all."""
    return any(role == TOOL and call_of(items, place) is None for place, (role, _) in enumerate(items))


def orphans(before: Sequence[Item], page: Sequence[Item]) -> int:
    """How many of a page's first entries are results of calls before it; 0 where nothing else is on it. before: what
    is known of the entries before the page. Both oldest first."""
    items = [*before, *page]
    count = 0
    while count < len(page) and page[count][0] == TOOL:
        call = call_of(items, len(before) + count)
        if call is None or call >= len(before):
            # One that answers nothing before the page: unless it stands among others that do.
            break
        count += 1
    return count if count < len(page) else 0
