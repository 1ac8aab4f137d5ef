"""What the tests of locks by name share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from config.base.errors import DomainError
from guard.locks import acquire, hold

NAME = "document-import:7"


def fence_of(name: str = NAME, **more: Any) -> int:
    with hold(name, **more) as lock:
        return lock.fence


def refused_with(code: str, name: Any = NAME, **arguments: Any) -> DomainError:
    with pytest.raises(DomainError) as refused:
        acquire(name, **arguments)
    assert refused.value.code == code
    return refused.value


@contextmanager
def timed(most: float) -> Iterator[None]:
    """What a call may take, with what a busy machine adds."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < most + 0.15
