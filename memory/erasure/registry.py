"""What each room removes. A room registers its part at ready(); the erasure and its receipt then cover it.

A later room (drafts, runs, jobs) writes a `Part` beside its tables and keys and registers it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.erasure.running import Erasing

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose data: a customer's in a tenant, or (customer_id '') all of the tenant's."""

    tenant: str
    customer_id: str = ""

    @property
    def whole_tenant(self) -> bool:
        return not self.customer_id


@dataclass(frozen=True)
class Part:
    """name: as the receipt names it, `memory.sessions`.

    count: what there is to remove now; touches nothing (a dry run).
    erase: removes it, in steps (`Erasing.step`), each a transaction that also counts. It must be safe to repeat and
        to be killed at any point: what is open is written down (`Step.remains`) in the step that makes it so.
    finish: the rest, from what was written down alone, for nobody knows the customer's id any more: gives back what
        is still open, None when nothing is. Errors: RedisUnavailable, DatabaseError: it is asked again later.
    tenants: tenant -> what there is of it.
    """

    name: str
    count: Callable[[Subject], Counts]
    erase: Callable[[Erasing], None]
    finish: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = None
    tenants: Callable[[], dict[str, Counts]] | None = None


@dataclass(frozen=True)
class Kept:
    """What an erasure leaves, and on what ground. rows: how many there are of the customer, where that can be told.
    only_if_any: the receipt tells of it where there are some, or where that could not be told."""

    name: str
    ground: str
    rows: Callable[[Subject], int] | None = None
    only_if_any: bool = False


@dataclass
class _Registry:
    parts: dict[str, Part] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)


_registry = _Registry()


def register(part: Part) -> None:
    """In the order of registration the parts are removed. Registering a name again replaces it."""
    _registry.parts[part.name] = part


def register_kept(kept: Kept) -> None:
    _registry.kept[kept.name] = kept


def parts() -> list[Part]:
    return list(_registry.parts.values())


def kept() -> list[Kept]:
    return list(_registry.kept.values())
