"""What the log is given of others' loggers: nobody's id out of an address or an exception, and an outage of the broker
as a line now and then, not a traceback five times a second."""

from __future__ import annotations

import logging
import time
import traceback
from types import TracebackType
from typing import Any

from django.http import HttpRequest

_REPEATED = ("Message Error", "consumer: ", "beat: Connection error")


def route_of(request: HttpRequest) -> str:
    """The pattern that the address was read by, `api/v1/profiles/l1/<customer_id>`: what stands in its places may name
    a customer. Of an address without a route nothing is known, and nothing told."""
    match = getattr(request, "resolver_match", None)
    return f"/{match.route}" if match is not None else "(no route)"


def places_of(kind: type[BaseException], error: BaseException | None, place: TracebackType | None) -> str:
    """A traceback without what the exceptions say: their messages may quote a customer's data."""
    told = []
    for frame in traceback.extract_tb(place):
        told.append(f"  {frame.filename}:{frame.lineno} in {frame.name}")
    cause = error and (error.__cause__ or error.__context__)
    causes: list[str] = []
    while cause is not None and len(causes) < 5:
        causes.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return "\n".join([*told, " from ".join([kind.__name__, *causes])])


class AddressFilter(logging.Filter):
    """For loggers that log requests or failed work of ours with all they know: of an address its route stays, of an
    exception its places, of a task its name. On the loggers and on the handler: a record passes one of them first."""

    def filter(self, record: logging.LogRecord) -> bool:
        request: Any = record.__dict__.pop("request", None)
        asked = isinstance(request, HttpRequest)
        if asked or record.name.startswith(("django.request", "django.security", "django.server")):
            self._address(record, request if asked else None)
        elif record.name == "celery.app.trace" and isinstance(record.args, dict):
            self._task(record)
        if record.exc_info and not isinstance(record.exc_info, bool):
            kind, error, place = record.exc_info
            if kind is not None:
                record.msg = f"{record.getMessage()}\n{places_of(kind, error, place)}"
                record.args = ()
            record.exc_info = record.exc_text = None
        return True

    def _address(self, record: logging.LogRecord, request: HttpRequest | None) -> None:
        if request is None:
            # No request to ask: what kind of refusal it was is in the logger's name, and what it says is the caller's.
            record.msg, record.args = "a request was refused or failed (%s)", (record.levelname,)
            return
        status = record.__dict__.get("status_code", "")
        # The words before the address are Django's own: the status, or why a form was refused.
        record.msg = "%s %s on %s"
        record.args = (status, request.method, route_of(request))

    def _task(self, record: logging.LogRecord) -> None:
        data = record.args
        assert isinstance(data, dict)
        name, task_id = data.get("name"), data.get("id")
        record.__dict__.pop("data", None)
        record.msg, record.args = "task %s (%s) failed or was refused", (name, task_id)


class OutageFilter(logging.Filter):
    """For Celery's loggers that repeat themselves while the broker is away.

    Each kind of message passes once in `seconds`; tracebacks and stacks are cut to the exception's type.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg)
        if record.levelno < logging.WARNING or not kind.startswith(_REPEATED):
            return True
        if kind.startswith("Message Error"):
            cause = record.exc_info[1] if record.exc_info else None
            while cause is not None and (deeper := cause.__cause__ or cause.__context__) is not None:
                cause = deeper
            record.msg = "beat cannot reach the broker (%s) and goes on trying"
            record.args = (type(cause).__name__,)
            record.exc_info = record.exc_text = None
        elif record.exc_info:
            cause = record.exc_info[1]
            record.msg = f"{record.getMessage().strip()} ({type(cause).__name__})"
            record.args, record.exc_info, record.exc_text = (), None, None
        before = self._last.get(kind)
        if before is not None and time.monotonic() - before < self._seconds:
            return False
        self._last[kind] = time.monotonic()
        return True
