"""Whose the rows of one SELECT are: the customer ids of its sources, and which of them are one person's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

Key = tuple[str, str]  # a source of a FROM, and its column


@dataclass
class Source:
    keys: tuple[str, ...]
    nullable: bool = False
    table: str = ""  # of the core, where it is one itself
    plain: frozenset[str] = frozenset()  # columns of which an extreme may be shown (extremes.py)


@dataclass
class Place:
    """The sources of one SELECT, which of their keys are the same person, and what stands around it."""

    sources: dict[str, Source] = field(default_factory=dict)
    around: Place | None = None
    same: dict[Key, Key] = field(default_factory=dict)
    tied: set[Key] = field(default_factory=set)

    def root(self, key: Key) -> Key:
        while (further := self.same.get(key, key)) != key:
            key = further
        return key

    def unite(self, one: Key, other: Key) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self.same[other] = one
            if other in self.tied:
                self.tied.add(one)

    def own(self, node: exp.Expr) -> Key | None:
        """The person, of the sources here, whom an expression names."""
        if isinstance(node, exp.Paren):
            return self.own(node.this)
        if isinstance(node, exp.Coalesce):
            found = {self.own(part) for part in (node.this, *node.expressions)}
            return found.pop() if len(found) == 1 else None
        if isinstance(node, exp.Column) and (source := self.sources.get(node.table)) and node.name in source.keys:
            return self.root((node.table, node.name))
        return None

    def is_outer(self, node: exp.Expr) -> bool:
        """Whether it names a person of a row around this query."""
        if isinstance(node, exp.Paren):
            return self.is_outer(node.this)
        if not isinstance(node, exp.Column) or node.table in self.sources:
            return False
        place = self.around
        while place is not None and node.table not in place.sources:
            place = place.around
        return place is not None and place.own(node) is not None

    def open(self) -> list[Key]:
        """One key for each person of a row, without whoever is a row's around it."""
        roots = dict.fromkeys(self.root((name, key)) for name, source in self.sources.items() for key in source.keys)
        return [root for root in roots if root not in self.tied]

    def column(self, root: Key) -> exp.Expr:
        """The person's id in each row: of several sources that may have none, the first that has one."""
        members = [(name, key) for name, source in self.sources.items() for key in source.keys
                   if self.root((name, key)) == root]  # fmt: skip
        sure = [one for one in members if not self.sources[one[0]].nullable]
        columns = [exp.column(key, table=name, quoted=True) for name, key in sure[:1] or members]
        return columns[0] if len(columns) == 1 else exp.Coalesce(this=columns[0], expressions=columns[1:])

    def only(self, keys: Collection[Key]) -> Place:
        """As queries within see it that stand where groups are already made: whom the groups are made by."""
        kept = {
            name: replace(source, keys=tuple(key for key in source.keys if self.root((name, key)) in keys))
            for name, source in self.sources.items()
        }
        return Place(kept, self.around, self.same, self.tied)


def unite_equal(query: exp.Select, place: Place) -> None:
    """Keys that are equal in every row are one person. An outer join's condition says so of the table that it joins."""
    where = query.args.get("where")
    for one in _conjuncts(where.this if where is not None else None):
        _equal(one, place, "")
    for join in query.args.get("joins") or ():
        outer = join.this.alias_or_name if join.side else ""
        for one in _conjuncts(join.args.get("on")):
            _equal(one, place, outer)


def _equal(node: exp.Expr, place: Place, outer: str) -> None:
    if not isinstance(node, exp.EQ):
        return
    left, right = place.own(node.this), place.own(node.expression)
    if left is not None and right is not None:
        if not outer or any(column.table == outer for column in node.find_all(exp.Column)):
            place.unite(left, right)
    elif not outer:
        for key, other in ((left, node.expression), (right, node.this)):
            if key is not None and place.is_outer(other):
                place.tied.add(place.root(key))


def _conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    elif node is not None:
        yield node
