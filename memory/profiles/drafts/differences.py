"""What one revision changed of another, line by line, for people who review."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from memory.profiles.drafts.models import AdvisorDraftRevision

# Past so many lines on a side, the parts are shown whole one after the other: comparing costs their product.
MOST_LINES = 2000


@dataclass(frozen=True)
class Line:
    """how: same, gone, new."""

    how: str
    text: str


def differences(old: AdvisorDraftRevision | None, new: AdvisorDraftRevision) -> list[Line]:
    """The text of `new`, with what is gone of `old`; all of it `same` where there is no `old`."""
    after = new.body.splitlines()
    if old is None:
        return [Line("same", text) for text in after]
    before = old.body.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return [*(Line("gone", text) for text in before), *(Line("new", text) for text in after)]
    lines: list[Line] = []
    for how, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if how == "equal":
            lines += [Line("same", text) for text in after[c:d]]
            continue
        lines += [Line("gone", text) for text in before[a:b]]
        lines += [Line("new", text) for text in after[c:d]]
    return lines


def changed_fields(old: AdvisorDraftRevision | None, new: AdvisorDraftRevision) -> list[str]:
    """Names of the fields beside the text that differ: kind, channel, recipient, subject."""
    names = ("kind", "channel", "recipient", "subject")
    return [name for name in names if old is not None and getattr(old, name) != getattr(new, name)]
