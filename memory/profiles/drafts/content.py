"""What a draft says, checked; and the hash that binds an approval to what is sent."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.seen import is_seen
from memory.profiles.drafts.models import AdvisorDraftRevision, DraftChannel, DraftKind

MAX_BODY_BYTES = 256 * 1024
MAX_SUBJECT = 200  # characters, as the columns
MAX_RECIPIENT = 200
MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Content:
    """kind: message, proposal, report. channel: how it is to go. recipient: the address there, '' where the channel
    knows the customer's own. subject: '' for none. body: the words, at most 256 KiB of UTF-8."""

    kind: str
    channel: str
    body: str
    subject: str = ""
    recipient: str = ""

    def with_plain_lines(self) -> Content:
        """Each line of the body ended by a line feed alone, whatever the writer's system ends lines with. What is
        stored, hashed, approved and sent is this."""
        return replace(self, body=self.body.replace("\r\n", "\n").replace("\r", "\n"))

    def check(self) -> None:
        """Errors: INVALID_REQUEST (422) that names the field, BODY_TOO_LARGE (413)."""
        for name, value, allowed in (("kind", self.kind, DraftKind), ("channel", self.channel, DraftChannel)):
            if value not in allowed.values:
                raise _invalid(name, f"is none of {', '.join(allowed.values)}")
        for name, text, most in (("subject", self.subject, MAX_SUBJECT), ("recipient", self.recipient, MAX_RECIPIENT)):
            if len(text) > most:
                raise _invalid(name, f"has {len(text)} characters; at most {most}")
            if has_hidden(text) or (name == "recipient" and _JOINER in text):
                # A line break in an address or a subject would be a header of its own to whoever sends the mail; what
                # has no width or turns the direction would be read by nobody who reviews it.
                raise _invalid(name, "has a character that is a control, a separator of lines or not to be seen")
        try:
            size = len(self.body.encode())
            f"{self.subject}{self.recipient}".encode()
        except UnicodeEncodeError:
            raise _invalid("body", "holds half of a surrogate pair (\\ud800 to \\udfff)") from None
        if not any(is_seen(char) for char in self.body):
            raise _invalid("body", "is empty, or nothing of it is to be seen")
        if size > MAX_BODY_BYTES:
            raise DomainError("BODY_TOO_LARGE", f"the text is {size} bytes; the limit is {MAX_BODY_BYTES}")

    def hash(self, *, draft_id: str, customer_id: str) -> str:
        """SHA-256, hex, of the canonical JSON of the six fields with the draft and the customer: an approval is good
        for these words, to this recipient, by this channel, in this draft."""
        whole = {**asdict(self), "draft_id": draft_id, "customer_id": customer_id}
        return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def has_hidden(text: str, *, but: str = "") -> bool:
    """Whether it has a control (Cc), a format (Cf) or a separator of lines (Zl, Zp) other than those of `but`; what
    joins two emoji to one is part of what is seen."""
    return next(hidden_places(text, but=but), None) is not None


def hidden_places(text: str, *, but: str = "") -> Iterator[int]:
    for place, char in enumerate(text):
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char not in but and not _joins(text, place):
            yield place


_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"


def _joins(text: str, place: int) -> bool:
    """Whether a zero width joiner stands between two emoji; the first may have its form and its colour of skin."""
    if text[place] != _JOINER or place + 1 == len(text):
        return False
    before = place - 1
    while before >= 0 and (text[before] == _AS_EMOJI or "\U0001f3fb" <= text[before] <= "\U0001f3ff"):
        before -= 1
    return before >= 0 and _is_emoji(text[before]) and _is_emoji(text[place + 1])


def _is_emoji(char: str) -> bool:
    return char in "↔↕" or (char >= "\u2600" and unicodedata.category(char) == "So")


def content_of(revision: AdvisorDraftRevision) -> Content:
    return Content(revision.kind, revision.channel, revision.body, revision.subject, revision.recipient)


def _invalid(field: str, reason: str) -> DomainError:
    errors: list[dict[str, Any]] = [{"field": field, "reason": reason}]
    return DomainError("INVALID_REQUEST", f"{field}: {reason}", errors=errors)
