"""Conversations. In process, after django.setup(): `from memory.sessions import Sessions, AsyncSessions`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.sessions.async_door import AsyncSessions
    from memory.sessions.door import Sessions
    from memory.sessions.entries import Message, NewMessage, Receipt

__all__ = ["AsyncSessions", "Message", "NewMessage", "Receipt", "Sessions"]

# Looked up when they are asked for: they lead to models, and Django imports this package before it has any.
_HOME = {"Sessions": "door", "AsyncSessions": "async_door"} | dict.fromkeys(
    ("Message", "NewMessage", "Receipt"), "entries"
)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
