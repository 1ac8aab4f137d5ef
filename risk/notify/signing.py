"""How a webhook says that it comes from here: an HMAC over time and body (docs/webhooks.md)."""

from __future__ import annotations

import hmac
import time

EVENT_ID = "X-Xinghuo-Event-Id"  # the same in each try of an event: who has it may drop the next
ATTEMPT = "X-Xinghuo-Attempt"
TIMESTAMP = "X-Xinghuo-Timestamp"  # whole seconds since 1970, of this try
SIGNATURE = "X-Xinghuo-Signature"  # v1= and 64 hex digits
REPLAY_SECONDS = 300


def signature(*, secret: str, timestamp: str, body: bytes) -> str:
    """`v1=` and the HMAC-SHA256 of `timestamp.body` under the secret, in hex."""
    return "v1=" + hmac.digest(secret.encode(), timestamp.encode() + b"." + body, "sha256").hex()


def verify(*, secret: str, timestamp: str, given: str, body: bytes, at: float | None = None) -> bool:
    """What a receiver asks before it reads the body: rightly signed, and not older (or newer) than REPLAY_SECONDS."""
    if not (timestamp.isascii() and timestamp.isdigit()):
        return False
    if abs((time.time() if at is None else at) - int(timestamp)) > REPLAY_SECONDS:
        return False
    right = signature(secret=secret, timestamp=timestamp, body=body)
    return hmac.compare_digest(right.encode(), given.encode("utf-8", "surrogatepass"))
