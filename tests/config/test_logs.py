"""The log while the broker is away: told once, without tracebacks."""

from __future__ import annotations

import logging
import sys

from config.logs import OutageFilter


def make_record(message: str, *arguments: object, with_error: bool = False) -> logging.LogRecord:
    info = None
    if with_error:
        try:
            try:
                raise ConnectionRefusedError("broker:6379")
            except ConnectionRefusedError as error:
                raise RuntimeError("could not apply") from error
        except RuntimeError:
            info = sys.exc_info()
    return logging.LogRecord("celery.beat", logging.ERROR, __file__, 1, message, arguments, info)


def test_a_tick_that_found_no_broker_is_one_line() -> None:
    outage = OutageFilter()
    first = make_record("Message Error: %s\n%s", "x", ["stack"], with_error=True)
    assert outage.filter(first)
    assert first.getMessage() == "beat cannot reach the broker (ConnectionRefusedError) and goes on trying"
    assert first.exc_info is None
    assert not outage.filter(make_record("Message Error: %s\n%s", "x", ["stack"], with_error=True))


def test_each_kind_passes_again_later_and_everything_else_passes_always() -> None:
    outage = OutageFilter(seconds=0)
    for _ in range(2):
        assert outage.filter(make_record("consumer: Cannot connect to %s", "redis"))
    outage = OutageFilter()
    for _ in range(2):
        assert outage.filter(make_record("Scheduler: something else"))


def test_a_worker_that_lost_its_broker_says_why_in_one_line() -> None:
    told = make_record("consumer: Connection to broker lost. Trying to re-establish the connection...", with_error=True)
    assert OutageFilter().filter(told)
    assert told.getMessage().endswith("connection... (RuntimeError)")
    assert told.exc_info is None
