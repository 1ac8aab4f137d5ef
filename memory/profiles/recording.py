"""What every write of a profile leaves beside its row: a version, an outbox row, and what happens after the commit.

The models call this; it knows them by their columns alone, so that a column to come is kept without a line here.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import DatabaseError, models, transaction
from django.db.models import Max, Q

from config.base.clock import now, rfc3339
from config.base.fields import CanonicalJSONField, canonical_json
from config.base.trace import current_trace_id

if TYPE_CHECKING:
    from memory.profiles.models import Profile, ProfileVersion

logger = logging.getLogger(__name__)

BATCH = 500
_TICK = timedelta(microseconds=1)

# Columns of the row that the version has as columns of its own, and the one that changes without a version.
_OWN = frozenset(
    {"id", "tenant", "customer_id", "advisor_id", "version", "updated_at", "updated_by", "trace_id",
     "snapshot_confirmed_at"}
)  # fmt: skip


# --- who writes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Author:
    """name: the actor, or a service's name. agent: the agent or service that wrote."""

    name: str = ""
    agent: str = ""


_author: ContextVar[Author] = ContextVar("profile_author", default=Author())  # noqa: B039 - frozen


def current_author() -> Author:
    return _author.get()


@contextmanager
def authored(name: str, agent: str) -> Iterator[None]:
    """Writes of profiles meanwhile, by whatever means of the ORM, are versions of this author."""
    token = _author.set(Author(name[:64], agent[:32]))
    try:
        yield
    finally:
        _author.reset(token)


# --- numbers and instants -----------------------------------------------------------------------------------------


def after(standing: datetime) -> datetime:
    """The instant of the next version: now, or just after the one that stands where the clock has not got so far."""
    return max(now(), standing + _TICK)


class Last(NamedTuple):
    version: int
    at: datetime
    deleted: bool


def _key(profile: Any) -> tuple[str, str, str, str]:
    return profile.tenant, str(profile.layer), profile.customer_id, getattr(profile, "advisor_id", "")


def _last_of(profiles: Sequence[Any]) -> dict[tuple[str, str, str, str], Last]:
    """The newest version of each that has one. 1 SQL for each tenant, layer and 500 customers."""
    from memory.profiles.models import ProfileVersion

    found: dict[tuple[str, str, str, str], Last] = {}
    groups: dict[tuple[str, str], set[str]] = {}
    for profile in profiles:
        groups.setdefault((profile.tenant, str(profile.layer)), set()).add(profile.customer_id)
    for (tenant, layer), customers in groups.items():
        ordered = sorted(customers)
        for start in range(0, len(ordered), BATCH):
            rows = (
                ProfileVersion.objects.filter(
                    tenant=tenant, layer=layer, customer_id__in=ordered[start : start + BATCH]
                )
                .order_by()
                .values_list("customer_id", "advisor_id")
                .annotate(last=Max("version"), written=Max("at"), gone=Max("version", filter=Q(deleted=True)))
            )
            for customer_id, advisor_id, version, at, deleted in rows:
                found[tenant, layer, customer_id, advisor_id] = Last(version, at, deleted == version)
    return found


def go_on_numbering(made: Sequence[Profile]) -> None:
    """Rows that were inserted just now and existed before their deletion: they go on from the version they had.

    The parts of l3 go on too. After the insert, so that whoever deleted the former row has committed. 1 SQL, and 1 for
    each such row, 2 of l3.
    """
    past = _last_of(made)
    for row in made:
        last = past.get(_key(row))
        if last is None:
            continue
        row.version, row.updated_at = max(row.version, last.version + 1), max(row.updated_at, after(last.at))
        ids = {name: getattr(row, name) for name in ("tenant", "customer_id", "advisor_id") if hasattr(row, name)}
        same: models.QuerySet[Any] = models.QuerySet(type(row)).filter(**ids)
        columns: dict[str, Any] = {"version": row.version, "updated_at": row.updated_at}
        if hasattr(row, "shown"):
            row.shown = columns["shown"] = _last_shown(row, last.version)
        same.update(**columns)


def _last_shown(profile: Any, version: int) -> Any:
    """What the newest version says of the parts of l3. 1 SQL."""
    from memory.profiles.models import ProfileVersion

    tenant, layer, customer_id, _advisor = _key(profile)
    same = ProfileVersion.objects.filter(tenant=tenant, layer=layer, customer_id=customer_id, version=version)
    return (same.values_list("columns", flat=True).first() or {}).get("shown", {})


# --- versions -----------------------------------------------------------------------------------------------------


def stored_columns(profile: Profile) -> dict[str, Any]:
    """The row's columns as JSON: instants as text, what is JSON already as it is."""
    columns = {}
    for field in profile._meta.concrete_fields:
        if field.attname in _OWN:
            continue
        value = getattr(profile, field.attname)
        if value is not None and isinstance(field, models.DateTimeField):
            value = rfc3339(field.to_python(value))
        columns[field.attname] = value
    return columns


def restored(version: ProfileVersion) -> Profile:
    """The row as this version left it; it is not to be saved."""
    from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3

    kinds: dict[str, type[Profile]] = {
        kind.layer.value: kind for kind in (CustomerProfileL1, CustomerProfileL2, CustomerProfileL3)
    }
    kind = kinds[str(version.layer)]
    values: dict[str, Any] = {"tenant": version.tenant, "customer_id": version.customer_id}
    if version.advisor_id:
        values["advisor_id"] = version.advisor_id
    for field in kind._meta.concrete_fields:
        if field.attname in _OWN or field.attname not in version.columns:
            continue
        value = version.columns[field.attname]
        values[field.attname] = value if isinstance(field, CanonicalJSONField) else field.to_python(value)
    return kind(
        **values,
        version=version.version,
        updated_at=version.at,
        updated_by=version.author,
        trace_id=version.trace_id,
    )


def hash_of(document: dict[str, Any]) -> str:
    """SHA-256 of a document as the cache holds it, 64 hex digits. Errors: ValueError for what is no JSON."""
    return hashlib.sha256(canonical_json(document).encode("utf-8", "surrogatepass")).hexdigest()


def _version_of(profile: Profile, author: Author) -> ProfileVersion:
    import json

    from memory.profiles.documents import whole_document
    from memory.profiles.models import ProfileVersion

    tenant, layer, customer_id, advisor_id = _key(profile)
    # As the database gives it back, so that the hash is that of what a reader is served.
    columns = json.loads(canonical_json(stored_columns(profile)))
    version = ProfileVersion(
        tenant=tenant,
        layer=layer,
        customer_id=customer_id,
        advisor_id=advisor_id,
        version=profile.version,
        at=profile.updated_at,
        author=profile.updated_by,
        agent=author.agent,
        trace_id=profile.trace_id,
        schema_version=_schema_version(columns),
        columns=columns,
    )
    version.document_hash = hash_of(whole_document(restored(version)))
    return version


def _schema_version(columns: dict[str, Any]) -> int:
    payload = columns.get("payload")
    said = payload.get("schema_version") if isinstance(payload, dict) else None
    return said if isinstance(said, int) and 0 < said < 32_768 else 1


def record_written(profiles: Iterable[Profile]) -> None:
    """In the transaction of a write, for rows as they now stand there: their versions and outbox rows.

    1 SQL more for each l3 of which the advisor or the customer is shown something else than before."""
    from memory.profiles.documents import shown_marks

    author = current_author()
    rows = list(profiles)
    for profile in rows:
        if (marks := shown_marks(profile)) is not None:
            profile.shown = marks  # type: ignore[attr-defined]
            same: models.QuerySet[Any] = models.QuerySet(type(profile)).filter(pk=profile.pk)
            same.update(shown=marks)
    _record([_version_of(profile, author) for profile in rows])


# --- deletions ----------------------------------------------------------------------------------------------------

_gathered: ContextVar[list[Any] | None] = ContextVar("profile_deletions", default=None)


@contextmanager
def gathered_deletions(*, versions: bool = True) -> Iterator[None]:
    """One statement for all rows that are deleted meanwhile, and not one for each signal.

    versions: False for an erasure, which leaves no version that says so, and removes all others.
    """
    if _gathered.get() is not None:
        yield
        return
    gone: list[Any] = []
    token = _gathered.set(gone)
    try:
        yield
    finally:
        _gathered.reset(token)
    if versions:
        _record_deleted(gone)
    else:
        record_changes(gone)


def on_saved(sender: type[models.Model], instance: Any, raw: bool = False, **_: Any) -> None:
    if raw:
        record_changes([instance])


def on_deleted(sender: type[models.Model], instance: Any, **_: Any) -> None:
    gathered = _gathered.get()
    if gathered is None:
        _record_deleted([instance])  # a cascade
    else:
        gathered.append(instance)


def _record_deleted(profiles: Sequence[Profile]) -> None:
    """The rows are gone and their locks held, so the newest version that is there was theirs. 1 SQL more for each l3.

    Of one whose last version says already that it was deleted (two deleted it at once) there is nothing to tell, and
    of one without any history (erased) nothing may be.
    """
    from memory.profiles.documents import marks_of_deletion
    from memory.profiles.models import ProfileVersion

    author = current_author()
    past = _last_of(profiles)
    versions: list[ProfileVersion] = []
    others: list[Profile] = []
    for profile in profiles:
        tenant, layer, customer_id, advisor_id = key = _key(profile)
        last = past.get(key)
        if last is None or last.deleted:
            others.append(profile)
            continue
        version, at = last.version + 1, after(last.at)
        columns = {}
        if hasattr(profile, "shown"):
            columns["shown"] = marks_of_deletion(_last_shown(profile, last.version), version=version, at=at)
        versions.append(
            ProfileVersion(
                tenant=tenant,
                layer=layer,
                customer_id=customer_id,
                advisor_id=advisor_id,
                version=version,
                at=at,
                columns=columns,
                author=author.name,
                agent=author.agent,
                trace_id=current_trace_id(),
                deleted=True,
            )
        )
    _record(versions)
    record_changes(others)


# --- the outbox and the commit ------------------------------------------------------------------------------------


def _record(versions: Sequence[ProfileVersion]) -> None:
    from memory.profiles.models import ProfileVersion

    if not versions:
        return
    ProfileVersion.objects.bulk_create(versions, batch_size=BATCH)
    if any(version.pk is None for version in versions):
        _find_rows(versions)
    _leave_changes(versions, [version.pk for version in versions])


def _find_rows(versions: Sequence[ProfileVersion]) -> None:
    """MySQL does not tell the keys of what many rows' INSERT made (MariaDB and SQLite do)."""
    from memory.profiles.models import ProfileVersion

    wanted = {(*_key(version), version.version): version for version in versions}
    for start in range(0, len(versions), BATCH):
        batch = versions[start : start + BATCH]
        numbers = {version.version for version in batch}
        rows = ProfileVersion.objects.filter(
            customer_id__in={version.customer_id for version in batch},
            tenant__in={version.tenant for version in batch},
            version__in=numbers,
        )
        for row in rows.defer("columns"):
            if (version := wanted.get((*_key(row), row.version))) is not None:
                version.pk = row.pk


def record_changes(profiles: Iterable[Any]) -> None:
    """In the transaction of a change that is no version: outbox rows now, the cached copies go after the commit.

    profiles: whatever names one (`cache.Slot` too).
    """
    _leave_changes(list(profiles), None)


def _leave_changes(profiles: Sequence[Any], version_rows: Sequence[int] | None) -> None:
    """A rollback takes the rows along and deletes nothing. With Redis away the rows stay for the sweeper."""
    from memory.profiles import cache
    from memory.profiles.models import ProfileChange

    if not profiles:
        return
    changes = []
    for place, profile in enumerate(profiles):
        tenant, layer, customer_id, advisor_id = _key(profile)
        changes.append(
            ProfileChange(
                tenant=tenant,
                layer=layer,
                customer_id=customer_id,
                advisor_id=advisor_id,
                version_row=version_rows[place] if version_rows else None,
            )
        )
    ProfileChange.objects.bulk_create(changes, batch_size=BATCH)

    def committed() -> None:
        # Without its DEL some reader may be given the version before this one, and another one this: whoever first is
        # (settling.py), or the sweeper, says from when.
        if cache.drop_quietly(changes) and version_rows:
            settle_quietly(version_rows, now())

    transaction.on_commit(committed)


def settle_quietly(version_rows: Sequence[int], moment: datetime) -> bool:
    """Says from when these versions are what readers are given; of those that were told nothing changes.

    moment: after their keys were deleted, so that no reader finds an older one from then on. What fails here, False, is
    left to the next one who meets them."""
    from memory.profiles.models import ProfileVersion

    try:
        for start in range(0, len(version_rows), BATCH):
            ProfileVersion.objects.filter(pk__in=version_rows[start : start + BATCH]).settle(moment)
    except DatabaseError as error:
        logger.warning("versions of profiles are left to the sweeper to settle (%s)", type(error).__name__)
        return False
    return True
