"""Redis keys of the audit: only what an outage of the database has to be remembered in."""

from __future__ import annotations

from config.base.keys import Key

LOST_SECONDS = 7 * 86_400

LOST = Key(
    "guard:audit:lost", "hash", LOST_SECONDS, scope="system",
    writers="guard.audit, when an observation could not be written", readers="sealer, doctor, /metrics",
    on_loss="the log's ERROR lines still tell of the losses",
)  # fmt: skip
