"""Work that makes many objects without cycles, undisturbed by Python's search for cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_working = 0  # threads inside
_was_on = False


@contextmanager
def without_collecting() -> Iterator[None]:
    """No search for cycles in this process until the end of the block, or of the last of several at once.

    For bounded batches: a chunk of customers' facts is some hundred thousand live objects, and each search walks all of
    them (a tenth of a scan's time). What such a block leaves behind in cycles is found by the next search.
    """
    global _working, _was_on
    with _lock:
        if not _working:
            _was_on = gc.isenabled()
            gc.disable()
        _working += 1
    try:
        yield
    finally:
        with _lock:
            _working -= 1
            if not _working and _was_on:
                gc.enable()
