"""Reads of the feed's server, off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from django.db import DatabaseError, InterfaceError

T = TypeVar("T")

AWAY = (DatabaseError, InterfaceError)


async def in_database(read: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """In the thread that keeps the process's connection: one read at a time. Errors: AWAY."""
    found: T = await database_sync_to_async(read)(*arguments, **named)
    return found
