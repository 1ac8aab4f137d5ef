"""Whose a session is: told by the room that keeps sessions."""

from __future__ import annotations

from collections.abc import Callable

from config.base.errors import DomainError
from guard.access.services import Caller

SessionCheck = Callable[[Caller, str], None]
_check: SessionCheck | None = None


def register_session_check(check: SessionCheck) -> None:
    """Told at ready(): (caller, session_id) raises DomainError where the caller may not write the session."""
    global _check
    _check = check


def check_session(caller: Caller, session_id: str) -> None:
    """Errors: those of the registered check. Nobody to ask means no (closed)."""
    if _check is None:
        raise DomainError("SESSION_NOT_FOUND", "nobody here keeps sessions")
    _check(caller, session_id)
