"""The settings that every call asks for, as plain attributes: Django's own way is a Python call each, ten an append."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


class _Limits:
    """Read once, and again when a setting changes (which tests do)."""

    def __init__(self) -> None:
        self.load()

    def load(self, **_: Any) -> None:
        self.prefix: str = settings.REDIS_KEY_PREFIX
        self.ttl: int = settings.SESSION_TTL_SECONDS
        self.max_age_us: int = settings.SESSION_MAX_AGE_SECONDS * 1_000_000
        self.windows: dict[str, int] = settings.SESSION_WINDOWS
        self.backlog_sync: int = settings.SESSION_BACKLOG_SYNC
        self.backlog_refuse: int = settings.SESSION_BACKLOG_REFUSE
        self.summary_chars: int = settings.SESSION_SUMMARY_CHARS
        self.batch_messages: int = settings.MAX_BATCH_MESSAGES
        self.message_bytes: int = settings.MAX_MESSAGE_BYTES
        self.body_bytes: int = settings.MAX_BODY_BYTES


limits = _Limits()
setting_changed.connect(limits.load)
