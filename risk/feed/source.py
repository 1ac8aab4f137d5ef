"""Whether the feed's source is alive: silence on a screen must mean that nothing happens, not that nobody tells.

The publisher says with each of its rounds that it has looked (`risk:pub:feed-alive`), through the same Redis and the
same subscription as every alert. Not hearing of it for QUIET_SECONDS, or an event that waits so long in the outbox,
is told to the sockets with their next heartbeat, which comes at once.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from config.base.clock import now, rfc3339

QUIET_SECONDS = 10.0

RELAY = "relay"  # this process does not hear Redis
PUBLISHER = "publisher"  # nobody looks into the outbox, or cannot say so
OUTBOX = "outbox"  # somebody does, and events stay there all the same


class Source:
    def __init__(self) -> None:
        self._heard = time.monotonic()
        self._unsent: datetime | None = None
        self.subscribed = False

    def heard(self) -> None:
        """The publisher is alive, or has just sent something."""
        self._heard = time.monotonic()

    def begin(self) -> None:
        """Somebody listens from now on: nobody has heard anything before."""
        self._heard = time.monotonic()
        self._unsent = None

    def waits(self, oldest: datetime | None) -> None:
        """When the oldest event that was not sent was written."""
        self._unsent = oldest

    def trouble(self) -> dict[str, Any]:
        """What a heartbeat says besides `head`: nothing while all is well, else `source`, `since` (RFC 3339) and
        `why`."""
        silent = time.monotonic() - self._heard
        if silent > QUIET_SECONDS:
            why = PUBLISHER if self.subscribed else RELAY
            return _quiet(now() - timedelta(seconds=silent), why)
        if self._unsent is not None and (now() - self._unsent).total_seconds() > QUIET_SECONDS:
            return _quiet(self._unsent, OUTBOX)
        return {}


def _quiet(since: datetime, why: str) -> dict[str, Any]:
    # To the second: the same words for the same silence.
    return {"source": "quiet", "since": rfc3339(since.replace(microsecond=0)), "why": why}
