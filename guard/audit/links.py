"""What a row says of how it was written: by which process, as its which, and after which rows of the same process.

A row cannot sign its own id, which the database gives out. But a process knows the ids of its rows once they are
committed, and the next row it writes names them, with the ends of their macs, under its own mac. So whoever exchanges
the ids of two rows, or takes one away, contradicts a later row, also where no seal had come by yet. The process and its
count make every mac another one, so that a row copied whole is known whatever it says.

In the column: `process.count`, then `,id.end-of-mac` for each row that is named.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from typing import NamedTuple

NAMED = 4  # rows that one row names at most
REMEMBERED = 256  # rows that wait to be named; beyond it the oldest are left to the seals
MAC_END = 16  # hex digits

_lock = threading.Lock()
_process = secrets.token_hex(6)
_count = 0
_unnamed: dict[int, str] = {}  # committed rows of this process by id, and the ends of their macs

_LINK = re.compile(r"[0-9a-f]{12}\.[0-9]{1,12}((?:,[0-9]{1,19}\.[0-9a-f]{16})*)(?:~.*)?\Z")


class Named(NamedTuple):
    """A row that another one names. mac_end: the end of its mac."""

    id: int
    mac_end: str


def next_link() -> str:
    """For the row that is about to be written. Costs no query; the lock is this process's own, held for a moment."""
    global _count
    with _lock:
        _count += 1
        named = "".join(f",{row_id}.{end}" for row_id, end in list(_unnamed.items())[:NAMED])
        return f"{_process}.{_count}{named}"


def committed(row_id: int, mac: str, link: str) -> None:
    """Told when the row's transaction has committed: it is to be named, and those that it names have been."""
    with _lock:
        for one in named_in(link):
            _unnamed.pop(one.id, None)
        _unnamed[row_id] = mac[-MAC_END:]
        while len(_unnamed) > REMEMBERED:
            del _unnamed[next(iter(_unnamed))]


def named_in(link: str) -> list[Named]:
    """The rows that a link names; of what is no link, none."""
    found = _LINK.match(link)
    if found is None or not found[1]:
        return []
    return [Named(int(row_id), end) for row_id, _dot, end in (one.partition(".") for one in found[1][1:].split(","))]


def forget() -> None:
    """Names none of the rows so far: they were another process's (a fork), or the table was emptied (a test)."""
    global _process, _count
    _process, _count = secrets.token_hex(6), 0
    _unnamed.clear()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    forget()


os.register_at_fork(after_in_child=_after_fork)
