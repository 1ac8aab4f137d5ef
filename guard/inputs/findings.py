"""What was found in a text, and where."""

from __future__ import annotations

from dataclasses import dataclass

INJECTION = "injection"
PERSONAL_KINDS = (
    "resident_id", "mobile", "bank_card", "passport", "travel_permit", "uscc", "email", "landline", "plate", "name",
    "address",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """start, end: code points of the text as it was sent, end exclusive. rule: which one says so.

    weight: what an attack counts for, 0 of personal data.
    """

    start: int
    end: int
    kind: str
    rule: str
    weight: int = 0
