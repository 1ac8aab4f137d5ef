"""The settings that each admission asks for, read once: a look at Django's own takes half a microsecond each time.

Tests that override settings are heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


@dataclass(frozen=True, slots=True)
class Tuning:
    """lease_seconds: of a slot, where the caller names none. ai_actions: those with a quota and a budget."""

    prefix: str
    redis_url: str
    lease_seconds: float
    ai_actions: frozenset[str]


_tuning: Tuning | None = None


def tuning() -> Tuning:
    """Cost: a look at a name."""
    return _tuning or _read()


def _read() -> Tuning:
    global _tuning
    _tuning = Tuning(
        settings.REDIS_KEY_PREFIX,
        settings.REDIS_URL,
        settings.ADMISSION_LEASE_SECONDS,
        frozenset(settings.ADMISSION_AI_ACTIONS),
    )
    return _tuning


def _forget(**_: Any) -> None:
    global _tuning
    _tuning = None


setting_changed.connect(_forget, dispatch_uid="guard.admission.tuning")
