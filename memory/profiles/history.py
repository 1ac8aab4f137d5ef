"""Versions of profiles, read back: one at an instant or by its number, a page of them, and what changed in each.

As-of is commit order. A version counts from `visible_at`, which is told after its commit and before any reader is given
it (settling.py): not from when it was written, for until the commit every reader was given the version before it. An
as-of read that meets one that is not settled settles it, so the same question gets the same answer now and later.

Nothing here decides who may read: selectors.py and the admin do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from memory.profiles.cache import Slot
from memory.profiles.documents import Document, cached_document, whole_document
from memory.profiles.models import Layer, Profile, ProfileVersion
from memory.profiles.recording import hash_of, restored
from memory.profiles.settling import settle_up_to

MIN_LIMIT, MAX_LIMIT = 1, 200


@dataclass(frozen=True, slots=True)
class Of:
    """Which profile."""

    tenant: str
    layer: Layer
    customer_id: str
    advisor_id: str = ""

    @property
    def versions(self) -> QuerySet[ProfileVersion]:
        rows: QuerySet[ProfileVersion] = ProfileVersion.objects.filter(
            tenant=self.tenant, layer=self.layer.value, customer_id=self.customer_id, advisor_id=self.advisor_id
        )
        return rows

    @property
    def slot(self) -> Slot:
        return Slot(self.tenant, self.layer.value, self.customer_id, self.advisor_id)

    def __str__(self) -> str:
        return f"{self.layer.value} profile of customer {self.customer_id!r}"


def refuse_future(as_of: datetime) -> None:
    """Errors: INVALID_REQUEST (422): what readers will be given nobody knows."""
    if as_of > now():
        raise DomainError("INVALID_REQUEST", f"as_of {rfc3339(as_of)} is in the future; name an instant that has been")


def at_instant(of: Of, as_of: datetime) -> ProfileVersion | None:
    """The version that readers were given at `as_of`; None where there was no profile then.

    Cost: 1 SQL, 1 more where there is none; 3 more and 1 round trip where the newest one written before that is settled
    by this call. Errors: HISTORY_STARTS_LATER (404) with `earliest`.
    """
    visible = Q(visible_at__lte=as_of)
    found = of.versions.filter(visible | Q(visible_at=None, at__lte=as_of)).order_by("-version").first()
    if found is not None and found.visible_at is None:
        # Its writer may be about to say that it was to be seen at as_of: whoever comes first, that counts for good.
        settle_up_to(of.slot, found.version)
        found = of.versions.filter(visible).order_by("-version").first()
    if found is not None:
        return None if found.deleted else found
    first = of.versions.order_by("version").only("version", "at", "visible_at").first()
    if first is not None and first.version > 1:
        raise starts_later(of, rfc3339(seen_from(first)), first.version)
    return None


def numbered(of: Of, version: int) -> ProfileVersion:
    """That version. 1 SQL, 1 more where it is not there.

    Errors: VERSION_NOT_FOUND, PROFILE_NOT_FOUND where it is the one that says that the profile was deleted,
    HISTORY_STARTS_LATER (404).
    """
    found = of.versions.filter(version=version).first()
    if found is None:
        first = of.versions.order_by("version").only("version", "at", "visible_at").first()
        if first is not None and 0 < version < first.version:
            raise starts_later(of, rfc3339(seen_from(first)), first.version)
        raise no_version(of, version)
    if found.deleted:
        raise DomainError("PROFILE_NOT_FOUND", f"version {version} of the {of} is its deletion")
    return found


def no_version(of: Of, version: int) -> DomainError:
    return DomainError("VERSION_NOT_FOUND", f"there is no version {version} of the {of}")


def seen_from(version: ProfileVersion) -> datetime:
    """From when readers were given it; of one that is not settled yet: from when it was written."""
    return version.visible_at or version.at


def starts_later(of: Of, earliest: str, version: int) -> DomainError:
    return DomainError(
        "HISTORY_STARTS_LATER",
        f"what the {of} was before {earliest} is not known: its version {version} is the first that was kept",
        earliest=earliest,
        earliest_version=version,
    )


def row_of(version: ProfileVersion) -> Profile:
    """The row as it was. Errors: VERSION_DAMAGED (500) where it would not be what readers of the cache were served."""
    row = restored(version)
    if hash_of(whole_document(row)) != version.document_hash:
        raise DomainError("VERSION_DAMAGED", f"version {version.version} is not what was written then")
    return row


def document_of(version: ProfileVersion) -> Document:
    """What the cache held of it. Errors: as `row_of`."""
    return cached_document(row_of(version))


# --- a page -------------------------------------------------------------------------------------------------------

# A row as its reader is shown it at an instant.
View = Callable[[Profile, datetime], Document]
_NO_FIELDS = frozenset({"customer_id", "advisor_id", "version", "updated_at", "as_of", "schema_version"})


@dataclass(frozen=True, slots=True)
class Entry:
    """changed: names of fields that differ from the version before, None where that one was not kept."""

    version: int
    at: datetime
    visible_at: datetime | None
    author: str
    agent: str
    trace_id: str
    deleted: bool
    changed: list[str] | None


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first. next: the `before_version` of the page after it, None on the last."""

    items: list[Entry]
    next: int | None


def page(of: Of, *, view: View, limit: int, before_version: int | None) -> Page:
    """1 SQL: one row more than the page has, each with its columns (up to some 150 KiB).

    Errors: PROFILE_NOT_FOUND (404) where there has never been one.
    """
    rows = of.versions.order_by("-version")
    if before_version is not None:
        rows = rows.filter(version__lt=before_version)
    found = list(rows[: limit + 1])
    if not found and before_version is None:
        raise DomainError("PROFILE_NOT_FOUND", f"there has never been a {of}")
    items = []
    for place, version in enumerate(found[:limit]):
        before = found[place + 1] if place + 1 < len(found) else None
        changed = _changed(version, before, view)
        items.append(
            Entry(
                version.version, version.at, version.visible_at, version.author, version.agent, version.trace_id,
                version.deleted, changed,
            )
        )  # fmt: skip
    return Page(items, found[limit - 1].version if len(found) > limit else None)


def _changed(version: ProfileVersion, before: ProfileVersion | None, view: View) -> list[str] | None:
    if version.deleted:
        return []
    if before is None and version.version > 1:
        return None
    moment = seen_from(version)
    new = view(restored(version), moment)
    old = {} if before is None or before.deleted else view(restored(before), moment)
    return changed_names(new, old)


def changed_names(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    new, old = _fields(new), _fields(old)
    return sorted(name for name in {*new, *old} if new.get(name) != old.get(name))


def _fields(view: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in view.items() if name not in _NO_FIELDS and value not in (None, [])}


# --- for people -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A field of a column: `payload.goals`. None on the side where it is not there."""

    field: str
    before: Any
    after: Any


def diff(older: ProfileVersion | None, newer: ProfileVersion) -> list[Change]:
    """What differs between two versions of a profile, all columns, by name; all of it where there is no older one."""
    old, new = ({} if row is None else _flat(row.columns) for row in (older, newer))
    return [
        Change(name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and name not in ("core_synced_at", "shown") and not name.startswith("shown.")
    ]


def _flat(columns: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for column, value in columns.items():
        if isinstance(value, dict):
            flat |= {f"{column}.{name}": inner for name, inner in value.items()}
        else:
            flat[column] = value
    return flat


def history_of_customer(
    *, tenant: str, customer_id: str, limit: int = 50, before_id: int | None = None
) -> list[ProfileVersion]:
    """All layers' versions of a customer, newest first, without their columns: for the pages of people. 1 SQL."""
    rows = ProfileVersion.objects.filter(tenant=tenant, customer_id=customer_id)
    if before_id is not None:
        rows = rows.filter(pk__lt=before_id)
    return list(rows.defer("columns").order_by("-pk")[:limit])


def version_before(version: ProfileVersion) -> ProfileVersion | None:
    """The one that it replaced, where that was kept. 1 SQL."""
    of = Of(version.tenant, Layer(version.layer), version.customer_id, version.advisor_id)
    return of.versions.filter(version__lt=version.version).order_by("-version").first()
