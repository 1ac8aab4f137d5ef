"""Identifiers: what we make (UUIDv7, sortable by time) and what we accept from others."""

from __future__ import annotations

import re

import uuid_utils

from config.base.errors import DomainError

ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
SESSION_ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{16,64}\Z")


def new_id() -> str:
    """A new UUIDv7 as 36 characters: unique everywhere, in order of creation within a millisecond."""
    return str(uuid_utils.uuid7())


def _fault(value: object) -> str:
    if not isinstance(value, str):
        return f"is {type(value).__name__}, not text"
    if not value:
        return "is empty"
    if len(value) > 64:
        return f"is {len(value)} characters long"
    for char in value:
        if not ID_PATTERN.match(char):
            return f"has {char!r}"
    return "is too short"


def check_id(name: str, value: object) -> str:
    """`value` itself when it is 1 to 64 of A-Z a-z 0-9 _ . - ; never folded, never cut.

    Errors: INVALID_ID (422) that says what is wrong and what is allowed.
    """
    if isinstance(value, str) and ID_PATTERN.match(value):
        return value
    shown = repr(value[:40]) if isinstance(value, str) else ""
    raise DomainError("INVALID_ID", f"{name} {shown} {_fault(value)}; use 1 to 64 of A-Z a-z 0-9 _ . -")


def check_session_id(value: object) -> str:
    """`value` itself when it is a session id: 16 to 64 of the id alphabet and not all digits.

    Short or numeric ids are guessable, and a session id guards a conversation.
    """
    if isinstance(value, str) and SESSION_ID_PATTERN.match(value) and not value.isdigit():
        return value
    shown = repr(value[:40]) if isinstance(value, str) else ""
    fault = "is all digits" if isinstance(value, str) and value.isdigit() else _fault(value)
    raise DomainError("INVALID_ID", f"session id {shown} {fault}; use 16 to 64 of A-Z a-z 0-9 _ . - (not all digits)")
