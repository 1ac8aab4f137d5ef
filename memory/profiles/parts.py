"""The past of l3 as the readers of one of its parts were given it: by the part's own numbers and instants.

Versions of the row that changed nothing in the part are not there, and neither is a row whose part has never shown
anything: what is answered is what would be answered if they had not been written
(docs/decisions/0023-versions-of-parts.md). Nothing here decides who may read: selectors.py does.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime

from config.base.clock import rfc3339
from config.base.errors import DomainError
from memory.profiles import history
from memory.profiles.documents import Mark, PartName, marks_of, part_mark
from memory.profiles.history import Entry, Of, Page, View
from memory.profiles.models import CustomerProfileL3, ProfileVersion
from memory.profiles.recording import restored


def mark_of(version: ProfileVersion, part: PartName) -> Mark:
    """Where the part stood with this version of the row."""
    if version.deleted:
        found = marks_of(version.columns.get("shown")).get(part)
        return found or Mark(version.version, rfc3339(version.at), "", version.version)
    row = restored(version)
    assert isinstance(row, CustomerProfileL3)
    return part_mark(row, part)


def at_instant(of: Of, part: PartName, as_of: datetime) -> CustomerProfileL3 | None:
    """The row whose part readers were given at `as_of`; None where the part was not there.

    Cost, errors: as `history.at_instant`.
    """
    try:
        found = history.at_instant(of, as_of)
    except DomainError as error:
        if error.code != "HISTORY_STARTS_LATER":
            raise
        found = _first_kept(of)
        mark = mark_of(found, part) if found else Mark()
        if mark.version > 1 and mark.at and as_of < datetime.fromisoformat(mark.at):
            raise history.starts_later(of, mark.at, mark.version) from None
        if not mark.at or as_of < datetime.fromisoformat(mark.at):
            return None
    if found is None or not mark_of(found, part).there:
        return None
    return _row_of(found)


def numbered(of: Of, part: PartName, number: int) -> tuple[CustomerProfileL3, datetime, datetime]:
    """The row that has the part's version of that number, when it was written, and from when readers were given it.

    Cost: 2 SQL, and 1 for each halving of the versions that there are.
    Errors: as `history.numbered`, with the part's numbers and instants.
    """
    version = _first_with(of, part, number) if number > 0 else None
    mark = mark_of(version, part) if version is not None else Mark()
    if version is None or mark.version != number:
        first = _first_kept(of)
        oldest = mark_of(first, part) if first is not None else Mark()
        if 0 < number < oldest.version and oldest.at:
            raise history.starts_later(of, oldest.at, oldest.version)
        raise history.no_version(of, number)
    if not mark.there:
        raise DomainError("PROFILE_NOT_FOUND", f"version {number} of the {of} is its deletion")
    written = datetime.fromisoformat(mark.at or "")
    return _row_of(version), written, history.seen_from(version) if mark.row == version.version else written


def page(of: Of, part: PartName, *, view: View, limit: int, before_version: int | None) -> Page:
    """As `history.page`, of the part's own versions. Nobody is told who wrote them.

    1 SQL for each 200 versions of the row that are looked through.
    """
    items: list[Entry] = []
    below: int | None = None
    while len(items) <= limit:
        rows = of.versions.order_by("-version")
        found = list((rows if below is None else rows.filter(version__lt=below))[: history.MAX_LIMIT + 1])
        for place, version in enumerate(found[: history.MAX_LIMIT]):
            mark = mark_of(version, part)
            if mark.row != version.version or (before_version is not None and mark.version >= before_version):
                continue
            changed = _changed(version, mark, found[place + 1] if place + 1 < len(found) else None, part, view)
            items.append(Entry(mark.version, version.at, version.visible_at, "", "", "", version.deleted, changed))
        if len(found) <= history.MAX_LIMIT:
            break
        below = found[history.MAX_LIMIT - 1].version
    return Page(items[:limit], items[limit - 1].version if len(items) > limit else None)


def _changed(
    version: ProfileVersion, mark: Mark, before: ProfileVersion | None, part: PartName, view: View
) -> list[str] | None:
    if version.deleted:
        return []
    old = mark_of(before, part) if before is not None else Mark()
    if old.version != mark.version - 1:
        return None  # it was not kept
    moment = history.seen_from(version)
    former = view(restored(before), moment) if before is not None and old.there else {}
    return history.changed_names(view(restored(version), moment), former)


def _first_kept(of: Of) -> ProfileVersion | None:
    return of.versions.order_by("version").first()


def _first_with(of: Of, part: PartName, number: int) -> ProfileVersion | None:
    """The first version of the row with which the part had got that far. A part's number is at most the row's."""
    rows = list(of.versions.filter(version__gte=number).order_by("version").values_list("pk", flat=True))
    seen: dict[int, ProfileVersion] = {}

    def reached(pk: int) -> int:
        seen[pk] = ProfileVersion.objects.get(pk=pk)
        return mark_of(seen[pk], part).version

    place = bisect_left(rows, number, key=reached)
    return seen[rows[place]] if place < len(rows) else None


def _row_of(version: ProfileVersion) -> CustomerProfileL3:
    row = history.row_of(version)
    assert isinstance(row, CustomerProfileL3)
    return row
