"""Which rules hit a text, in any of the ways in which it may be seen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from guard.inputs.engine import Expression
from guard.inputs.findings import INJECTION, Found
from guard.inputs.normalising import Layer, Layers, View, mirrored, rotated, unleeted
from guard.inputs.rules.book import Book, Rule, book

# Whoever hides an attack in code means it: what is found there weighs more.
CODED = 10
# Bytes on either side of a trigger in which a hit that holds it lies.
AROUND = 1024
MOST = 50  # stretches kept of one rule: what a thousand would add is no more weight


def attacks(layers: Layers, *, rules: Book | None = None) -> list[Found]:
    """Every hit of every rule, sorted by place; one rule's hits do not overlap. Shadow rules are among them."""
    rules = rules or book()
    found: dict[tuple[str, int, int], Found] = {}
    for layer in layers.layers:
        for rule, view, start, end in _hits(layer, rules):
            place = layer.in_original(*view.span(start, end))
            weight = min(100, rule.weight + CODED) if layer.kinds else rule.weight
            known = found.get((rule.id, *place))
            if known is None or known.weight < weight:
                found[(rule.id, *place)] = Found(*place, INJECTION, rule.id, weight)
    return _apart(sorted(found.values(), key=lambda one: (one.start, -one.end, one.rule)))


def _hits(layer: Layer, rules: Book) -> Iterator[tuple[Rule, View, int, int]]:
    for view, strong in _views(layer):
        for trigger, group in rules.strong_groups if strong else rules.groups:
            for start, end in stretches(view, trigger):
                for rule in group:
                    found = rule.expression.find_within(view, start, end)
                    yield from ((rule, view, first, last) for first, last in islice(found, MOST))


def stretches(view: View, trigger: Expression) -> Iterator[tuple[int, int]]:
    """The stretches of a view, as bytes, in which a rule can hit: what lies around each trigger, joined where near."""
    size = len(view.utf8)
    start = end = 0  # of the stretch that is being joined together, none while it is empty
    at = 0
    while (found := trigger.first(view, at)) is not None:
        if found - AROUND > end:
            if end:
                yield start, end
            start = found - AROUND
        end = min(size, found + AROUND)
        if end == size:
            break
        # Whatever else lies near is in the stretch already.
        at = max(found + 1, end - AROUND // 2)
    if end:
        yield start, end


def _views(layer: Layer) -> Iterator[tuple[View, bool]]:
    """Each way to see a layer that differs from those before it; and whether strong rules alone look at it."""
    plain, together = layer.plain, layer.together
    yield plain, False
    if together is not plain:
        yield together, False
    for one in ("i", "l"):
        undone = unleeted(together, one=one)
        if undone is not together:
            yield undone, False
    if _latin(plain):
        yield rotated(plain), True
        yield mirrored(plain), True


def _latin(view: View) -> bool:
    """Whether there are enough Latin letters for a turned instruction."""
    return int(((view.codes >= 0x61) & (view.codes <= 0x7A)).sum()) >= 16


def _apart(found: list[Found]) -> list[Found]:
    ends: dict[str, int] = {}
    kept = []
    for one in found:
        if one.start >= ends.get(one.rule, 0):
            kept.append(one)
            ends[one.rule] = one.end
    return kept
