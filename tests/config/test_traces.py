"""A trace id belongs to one piece of work, although a worker process runs thousands of them."""

from __future__ import annotations

import logging

from celery import shared_task

from config.base.trace import TraceFilter, current_trace_id, is_trace_id, set_trace_id, traced
from config.celery import begin_trace, end_trace


@shared_task(name="tests.trace")
def trace_of_this_task() -> str:
    return current_trace_id()


def test_two_tasks_in_one_worker_have_two_traces_and_none_remains_between() -> None:
    set_trace_id("")
    first = trace_of_this_task.apply().get()
    second = trace_of_this_task.apply().get()
    assert is_trace_id(first)
    assert is_trace_id(second)
    assert first != second
    record = logging.LogRecord("worker", logging.INFO, "", 0, "between tasks", None, None)
    TraceFilter().filter(record)
    assert record.trace_id == "-"  # type: ignore[attr-defined]


def test_the_signals_are_what_does_it() -> None:
    begin_trace()
    assert is_trace_id(current_trace_id())
    end_trace()
    with traced() as inner:
        assert current_trace_id() == inner
    assert current_trace_id() != inner
