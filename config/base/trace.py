"""The trace id of the work at hand: 32 hex digits, from `traceparent` or new, on every row and log line."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_TRACE_ID = re.compile(r"[0-9a-f]{32}\Z")
_current: ContextVar[str] = ContextVar("trace_id", default="")


def new_trace_id() -> str:
    return secrets.token_hex(16)


def from_traceparent(header: str | None) -> str:
    """The trace id that a W3C `traceparent` header carries, or a new one where it carries none that is valid."""
    found = _TRACEPARENT.match(header or "")
    return found[1] if found and found[1] != "0" * 32 else new_trace_id()


def is_trace_id(value: object) -> bool:
    return isinstance(value, str) and _TRACE_ID.match(value) is not None


def current_trace_id() -> str:
    """The trace id of this request or task; one is made where none was set."""
    value = _current.get()
    if not value:
        value = new_trace_id()
        _current.set(value)
    return value


def set_trace_id(value: str) -> None:
    _current.set(value)


@contextmanager
def traced(trace_id: str = "") -> Iterator[str]:
    """One piece of work under a trace id of its own (a new one by default); afterwards the former is back."""
    token = _current.set(trace_id or new_trace_id())
    try:
        yield _current.get()
    finally:
        _current.reset(token)


@contextmanager
def trace_kept_or_new() -> Iterator[str]:
    """One piece of work under the trace id that is set, or a new one of its own where none is."""
    if _current.get():
        yield _current.get()
        return
    with traced() as value:
        yield value


class TraceFilter(logging.Filter):
    """Puts `trace_id` on every log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.trace_id = _current.get() or "-"
        return True
