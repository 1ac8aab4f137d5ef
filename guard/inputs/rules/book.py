"""The book of rules, as `rules.toml` has it."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from guard.inputs.engine import Expression
from guard.inputs.rules.atoms import atoms, is_common

PATH = Path(__file__).with_name("rules.toml")
KINDS = (
    "override", "extraction", "persona", "impersonation", "forging", "exfiltration", "encoded", "document", "control",
)  # fmt: skip
_FIELDS = {"id", "kind", "weight", "pattern", "ban", "strong", "shadow"}
# `{G}`: up to twelve characters that end no sentence. `{S}`: blanks.
_SHORT = {"{G}": r"[^。.!?;\n]{0,12}", "{S}": r"[ \t\n]{0,4}"}


@dataclass(frozen=True)
class Rule:
    """weight: 0-100. ban: a hit may block the actor. strong: looked for in turned and mirrored text too."""

    id: str
    kind: str
    weight: int
    expression: Expression
    ban: bool = False
    strong: bool = False
    shadow: bool = False


class Book:
    """All rules, each an expression of its own.

    RE2 can look for many at once, but where that automaton outgrows its memory it says "none" without a word; one
    expression alone goes on in another way then. Raises ValueError that names the rule and what is wrong with it.
    """

    def __init__(self, raw: bytes) -> None:
        stored = tomllib.loads(raw.decode("utf-8"))
        self.version: str = stored["version"]
        self.hash = hashlib.sha256(raw).hexdigest()[:12]
        self.rules = tuple(_rule(entry) for entry in stored["rule"])
        names = [rule.id for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError(f"two rules of one id: {sorted(name for name in names if names.count(name) > 1)[0]}")
        self.strong = tuple(rule for rule in self.rules if rule.strong)
        self.groups = _groups(self.rules)
        self.strong_groups = _groups(self.strong)


def _rule(entry: dict[str, Any]) -> Rule:
    name = entry.get("id", "?")
    unknown = set(entry) - _FIELDS
    if unknown:
        raise ValueError(f"rule {name}: unknown {sorted(unknown)}; known are {sorted(_FIELDS)}")
    if entry.get("kind") not in KINDS:
        raise ValueError(f"rule {name}: kind is one of {', '.join(KINDS)}, not {entry.get('kind')!r}")
    if not isinstance(entry.get("weight"), int) or not 0 <= entry["weight"] <= 100:
        raise ValueError(f"rule {name}: weight is a whole number from 0 to 100, not {entry.get('weight')!r}")
    pattern = entry["pattern"]
    for short, long in _SHORT.items():
        pattern = pattern.replace(short, long)
    try:
        expression = Expression(pattern)
    except ValueError as exc:
        raise ValueError(f"rule {name}: {exc}") from None
    if expression.matches_nothing:
        raise ValueError(f"rule {name}: it hits the empty text, so every text")
    return Rule(
        id=name, kind=entry["kind"], weight=entry["weight"], expression=expression,
        ban=entry.get("ban", False), strong=entry.get("strong", False), shadow=entry.get("shadow", False),
    )  # fmt: skip


class Group(NamedTuple):
    """Rules, and an expression that matches wherever one of them can: a text that it misses needs none of them."""

    trigger: Expression
    rules: tuple[Rule, ...]


def _groups(rules: tuple[Rule, ...]) -> tuple[Group, ...]:
    """The rules whose words are rare together, each that needs a word of every day by itself.

    Raises ValueError of a rule that has no word which all its matches hold: it would be tried on every text.
    """
    together: list[Rule] = []
    words: set[str] = set()
    alone: list[Group] = []
    for rule in rules:
        found = atoms(rule.expression.pattern)
        if found is None:
            raise ValueError(f"rule {rule.id}: no word is in all that it matches; give it one, or split it")
        if any(map(is_common, found)):
            alone.append(Group(_any_of(found), (rule,)))
        else:
            together.append(rule)
            words |= found
    return (Group(_any_of(words), tuple(together)), *alone) if together else tuple(alone)


def _any_of(words: Iterable[str]) -> Expression:
    words = set(words)
    needed = {word for word in words if not any(other != word and other in word for other in words)}
    return Expression("|".join(sorted(map(re.escape, needed))))


@cache
def book() -> Book:
    """The book in force in this process, read once."""
    return Book(PATH.read_bytes())
