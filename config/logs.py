"""What an outage of the broker looks like in the log: a line now and then, not a traceback five times a second."""

from __future__ import annotations

import logging
import time

_REPEATED = ("Message Error", "consumer: ", "beat: Connection error")


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
