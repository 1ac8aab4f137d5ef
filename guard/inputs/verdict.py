"""One verdict about one text: what may be done with it, and what in it says so. Pure: no clock, no database.

The same text, role and policy have the same verdict for ever under one rule set; `Verdict.rule_set` names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from guard.inputs.findings import INJECTION, Found
from guard.inputs.normalising import layers_of, tables
from guard.inputs.personal import VERSION as PERSONAL_VERSION
from guard.inputs.personal import masked, personal
from guard.inputs.rules import Book, attacks, book


class Outcome(StrEnum):
    """From the mildest to the hardest."""

    ALLOW = "allow"
    MASK = "mask"
    FLAG = "flag"
    BLOCK = "block"
    BAN = "ban"


ROLES = ("user", "assistant", "system", "tool")


@dataclass(frozen=True)
class Thresholds:
    """The score, 0-100, from which a text is flagged, blocked, and from which its sender is blocked too."""

    flag: int = 40
    block: int = 65
    ban: int = 90

    def __post_init__(self) -> None:
        if not 0 < self.flag <= self.block <= self.ban <= 101:
            raise ValueError(
                f"thresholds rise from 1 to 101 (never): flag {self.flag}, block {self.block}, ban {self.ban}"
            )


# A tool's result and a document have no business giving orders; what the firm itself wrote has.
TOOL = Thresholds(flag=30, block=55, ban=101)
OURS = Thresholds(flag=90, block=101, ban=101)


@dataclass(frozen=True)
class Policy:
    """thresholds: by role. muted: rules that are counted and never acted on, beside those in shadow. may_ban: rules
    whose measured rate of false alarms is under the ceiling; None where the rules' own word is taken."""

    thresholds: dict[str, Thresholds] = field(
        default_factory=lambda: {"user": Thresholds(), "tool": TOOL, "assistant": OURS, "system": OURS}
    )
    mask_personal: bool = True
    muted: frozenset[str] = frozenset()
    may_ban: frozenset[str] | None = None


DEFAULT = Policy()


@dataclass(frozen=True)
class Verdict:
    """score: of attacks alone, 0-100. spans: sorted. shadow: hits that are counted only. masked: the text with every
    item of personal data masked, whatever the outcome. text_hash: SHA-256 of the folded text, hex."""

    outcome: Outcome
    score: int
    rule_set: str
    spans: tuple[Found, ...]
    shadow: tuple[Found, ...]
    masked: str
    text_hash: str


BUDGET_RULE = "budget"
# What further kinds of attack in one text add to the heaviest, and how many of them count.
FURTHER, MOST_FURTHER = 5, 3


@cache
def rule_set() -> str:
    """The version of all that decides: tables, personal data, rules. `2026.12.1-` and 12 digits of their hash."""
    parts = f"{tables().version} {PERSONAL_VERSION} {book().hash}"
    return f"{book().version}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def inspect(text: str, *, role: str = "user", policy: Policy = DEFAULT, rules: Book | None = None) -> Verdict:
    """The verdict about a text. role: who is said to speak, one of ROLES; ValueError for any other.

    Cost: some 0.4 µs a character, whatever the text is; no more than 60 bytes of memory a character.
    """
    if role not in policy.thresholds:
        raise ValueError(f"role is one of {', '.join(ROLES)}, not {role!r}")
    known = rules or book()
    layers = layers_of(text)
    items = personal(layers)
    hits = attacks(layers, rules=known)
    by_id = {rule.id: rule for rule in known.rules}
    quiet = {rule.id for rule in known.rules if rule.shadow} | policy.muted
    shadow = tuple(one for one in hits if one.rule in quiet)
    acted = [one for one in hits if one.rule not in quiet]
    score = _score(acted, {rule_id: rule.kind for rule_id, rule in by_id.items()})
    thresholds = policy.thresholds[role]
    banning = any(
        by_id[one.rule].ban
        and (policy.may_ban is None or one.rule in policy.may_ban)
        and one.weight >= thresholds.block
        for one in acted
    )
    if layers.exhausted:
        acted.append(Found(0, max(1, len(text)), INJECTION, BUDGET_RULE, 100))
    return Verdict(
        outcome=_outcome(
            score, thresholds, banning=banning, exhausted=layers.exhausted, personal=bool(items), policy=policy
        ),
        score=score,
        rule_set=rule_set(),
        spans=tuple(sorted([*items, *acted], key=lambda one: (one.start, one.end, one.kind, one.rule))),
        shadow=shadow,
        masked=masked(text, items),
        text_hash=hashlib.sha256(layers.layers[0].view.utf8).hexdigest(),
    )


def _score(hits: Sequence[Found], kinds: dict[str, str]) -> int:
    """The heaviest hit, and a little for each further kind of attack beside it."""
    if not hits:
        return 0
    heaviest = max(one.weight for one in hits)
    further = len({kinds[one.rule] for one in hits}) - 1
    return min(100, heaviest + FURTHER * min(further, MOST_FURTHER))


def _outcome(
    score: int, thresholds: Thresholds, *, banning: bool, exhausted: bool, personal: bool, policy: Policy
) -> Outcome:
    if banning and score >= thresholds.ban:
        return Outcome.BAN
    if score >= thresholds.block or exhausted:
        return Outcome.BLOCK
    if score >= thresholds.flag:
        return Outcome.FLAG
    return Outcome.MASK if personal and policy.mask_personal else Outcome.ALLOW
