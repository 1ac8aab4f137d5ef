"""What the processes of one host share about an outage of Redis: two files under DATA_DIR/admission.

`outage.sqlite3` counts what is admitted without Redis, so that all processes together keep to a limit. `outage.mark` is
a page of memory that all of them look at: whether there is such a call at all, and whether a settlement could not be
told to Redis. Nothing in either must outlive the host; both may be removed while nothing runs.

Each look into the first is one transaction under a lock of the file, which the kernel takes from a process that dies.
Whoever does not get it within WAIT_SECONDS is answered as if nothing was left (closed): a process that was suspended
has it then, or the disk is full.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from config.base.redis import RedisUnavailable

logger = logging.getLogger(__name__)

WAIT_SECONDS = 0.08
_POLL_SECONDS = 0.0002
_SCHEMA = """
CREATE TABLE IF NOT EXISTS call (
    token TEXT PRIMARY KEY, place TEXT NOT NULL, actor TEXT NOT NULL, month TEXT NOT NULL, day TEXT NOT NULL,
    estimate INTEGER NOT NULL, counted INTEGER NOT NULL, asked INTEGER NOT NULL, began REAL NOT NULL,
    slot_ends REAL NOT NULL, money_ends REAL NOT NULL, settled REAL);
CREATE INDEX IF NOT EXISTS call_place ON call (place, actor);
CREATE TABLE IF NOT EXISTS moment (place TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS moment_place ON moment (place, at);
CREATE TABLE IF NOT EXISTS given (place TEXT PRIMARY KEY, remains INTEGER NOT NULL, used REAL NOT NULL);
"""


class _Files:
    """Of this process; a forked child opens its own, for a lock belongs to the open file."""

    def __init__(self) -> None:
        self.threads = threading.Lock()
        self.pages: mmap.mmap | None = None
        self.path: Path | None = None
        self.lock = -1
        self.calls: sqlite3.Connection | None = None


_files = _Files()


def _forget() -> None:
    global _files
    _files = _Files()


os.register_at_fork(after_in_child=_forget)


def _directory() -> Path:
    found = Path(settings.DATA_DIR) / "admission"
    found.mkdir(parents=True, exist_ok=True)
    return found


def _pages() -> mmap.mmap | None:
    files = _files
    if files.pages is None:
        try:
            number = os.open(_directory() / "outage.mark", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(number).st_size < 16:
                    os.ftruncate(number, 16)
                files.pages = mmap.mmap(number, 16)
            finally:
                os.close(number)
        except OSError:
            logger.exception("DATA_DIR cannot be used: other processes do not hear of what Redis was not told")
            files.pages = mmap.mmap(-1, 16)
    return files.pages


def mark() -> bytes:
    """Differs when a process of this host has settled what Redis could not be told. Cost: a look at memory."""
    pages = _files.pages or _pages()
    assert pages is not None
    return pages[:8]


def set_mark() -> None:
    pages = _pages()
    assert pages is not None
    pages[:8] = os.urandom(8)


def any_call() -> bool:
    """Whether a call that was admitted here without Redis may still be open. Cost: a look at memory."""
    pages = _files.pages or _pages()
    assert pages is not None
    return bool(struct.unpack("<d", pages[8:16])[0] > time.monotonic())


def expect_call(until: float) -> None:
    """until: monotonic seconds. Called within `calls`, so that of two the later one stands."""
    pages = _pages()
    assert pages is not None
    if struct.unpack("<d", pages[8:16])[0] < until:
        pages[8:16] = struct.pack("<d", until)


@contextmanager
def calls() -> Iterator[sqlite3.Connection]:
    """One transaction on the calls of this host, alone.

    Cost: some 0.1 ms. Errors: RedisUnavailable, where it cannot be had: nothing is left to decide by."""
    deadline = time.monotonic() + WAIT_SECONDS
    files = _files
    if not files.threads.acquire(timeout=WAIT_SECONDS):
        raise RedisUnavailable("what this host counts without Redis is in use")
    try:
        _lock(files, deadline)
        try:
            with _transaction(_connection(files)) as connection:
                yield connection
        finally:
            fcntl.flock(files.lock, fcntl.LOCK_UN)
    except (sqlite3.Error, OSError) as error:
        logger.exception("what this host counts without Redis cannot be read or written: %s", type(error).__name__)
        raise RedisUnavailable("what this host counts without Redis cannot be used") from error
    finally:
        files.threads.release()


def _lock(files: _Files, deadline: float) -> None:
    path = _directory()
    if files.path != path:
        if files.calls is not None:
            files.calls.close()
            os.close(files.lock)
        files.calls, files.path = None, path
        files.lock = os.open(path / "outage.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(files.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RedisUnavailable("what this host counts without Redis is in use") from None
            time.sleep(_POLL_SECONDS)


def _connection(files: _Files) -> sqlite3.Connection:
    if files.calls is None:
        assert files.path is not None
        made = sqlite3.connect(
            files.path / "outage.sqlite3",
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = OFF")  # of a host that loses power nothing here counts any more
        made.executescript(_SCHEMA)
        now = time.monotonic()  # from before a restart of the host: its times mean nothing any more
        made.execute("DELETE FROM call WHERE began > ?", [now])
        made.execute("DELETE FROM moment WHERE at > ?", [now])
        made.execute("DELETE FROM given WHERE used > ?", [now])
        files.calls = made
    return files.calls


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
