"""Reads of profiles: from the cache where it holds them, else from MySQL, which answers alone when Redis is away.

Costs. A hit is 1 round trip and no SQL (an advisor's assignment is 1 SQL before it); so is, for 5 s, a profile that is
not there. Of many readers who miss at once one loads, and the others look again until it has (1 round trip each). A
miss is 2 round trips and
1 SQL for each layer read; an l1 whose core fields are due for a look costs the sync's queries on top (4 and no new
version, when nothing has changed). Risk's read
of l3 is 1 SQL and no round trip: what is risk's alone is in MySQL only.

The core away. What it said before is shown and not cached. What it has never been asked is not known, and "no
profile" or "no assessment" would be made up: CORE_UNAVAILABLE (docs/decisions/0016-the-core-window.md).

Inside a transaction MySQL answers and nothing is filled: the caller may read its own uncommitted write, which a
rollback would take back but not out of the cache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, TypeVar

from django.db import DatabaseError, transaction

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from guard.access.models import Agent
from guard.access.services import Caller
from memory.core.window import CoreUnavailable
from memory.profiles import cache, documents, history, keys, parts, policies
from memory.profiles.cache import Part
from memory.profiles.core_sync import is_due, sync_l1_from_core, was_asked
from memory.profiles.documents import Document
from memory.profiles.flights import flights
from memory.profiles.history import Of
from memory.profiles.models import (
    CustomerProfileL1,
    CustomerProfileL2,
    CustomerProfileL3,
    Layer,
    Profile,
    ProfileVersion,
)
from memory.profiles.settling import settle_served, with_unsettled

logger = logging.getLogger(__name__)


P = TypeVar("P", bound=Profile)


class Loaded(NamedTuple):
    """document: None for none. unknown: why it cannot be told whether there is one. keep: whether it may be cached."""

    document: Document | None
    unknown: CoreUnavailable | None = None
    keep: bool = True


# What a reader finds: a document, that there is none, or why that is not known.
Answer = Document | CoreUnavailable | None
Loader = Callable[[], Loaded]

# Seconds that a reader waits for another one's load before it reads MySQL too: a lease, and a successor's load.
PATIENCE = keys.LEASE_SECONDS + 0.5
# Seconds after which it looks again, the last one again and again.
_PAUSES = (0.005, 0.01, 0.02, 0.04, 0.05)


def read_l1(
    *,
    caller: Caller,
    customer_id: str,
    at: datetime | None = None,
    as_of: datetime | None = None,
    version: int | None = None,
) -> Document:
    """The customer's l1 with `is_elderly` and `assessment_status` as of now.

    at: the instant for which derived fields are computed (default: now).
    as_of: exactly what this reader was given at that instant, derived fields of that instant too; who may read it is
        decided as of now. version: that version, as at `as_of` or else as when it came. Both are answered from
        `profile_version`, 1 SQL a layer and no round trip.
    Errors: INVALID_ID (422); AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403); PROFILE_NOT_FOUND (404);
    CORE_UNAVAILABLE (503) while the core is away and was never asked about this customer; for a past one
    also INVALID_REQUEST for an instant to come, HISTORY_STARTS_LATER, VERSION_NOT_FOUND (404), VERSION_DAMAGED (500).
    """
    policies.may_l1(caller, "read", customer_id=customer_id)
    if as_of is not None or version is not None:
        past, moment = _past(Of(caller.tenant, Layer.L1, customer_id), as_of, version)
        return _l1_shown(caller, _past_l1(past), moment)
    [document] = _through([_l1(caller.tenant, customer_id)])
    return _l1_shown(caller, _there(document, f"no l1 profile of customer {customer_id!r}"), at or now())


def _l1_shown(caller: Caller, document: Document, moment: datetime) -> Document:
    view = documents.l1_view(document, moment)
    return documents.masked(view) if caller.agent == Agent.ANALYST else view


def read_l2(
    *,
    caller: Caller,
    customer_id: str,
    advisor_id: str,
    as_of: datetime | None = None,
    version: int | None = None,
) -> Document:
    """The advisor's l2 of the customer. as_of, version, errors: as `read_l1`."""
    policies.may_l2(caller, "read", customer_id=customer_id, advisor_id=advisor_id)
    if as_of is not None or version is not None:
        past, _moment = _past(Of(caller.tenant, Layer.L2, customer_id, advisor_id), as_of, version)
        return documents.l2_view(history.document_of(past))
    [document] = _through([_l2(caller.tenant, customer_id, advisor_id)])
    missing = f"no l2 profile of customer {customer_id!r} by advisor {advisor_id!r}"
    return documents.l2_view(_there(document, missing))


def read_l3(
    *,
    caller: Caller,
    customer_id: str,
    at: datetime | None = None,
    as_of: datetime | None = None,
    version: int | None = None,
) -> Document:
    """The customer's l3 as this reader may see it: the customer's part, the advisor's, or risk's whole.

    An analyst, where the setting ANALYST_READS_PROFILES lets one read, gets the advisor's part masked.

    at, as_of, errors: as in `read_l1`. version: of l3 (of the reader's part of it); the customer's part follows from l1
    as it was beside it. An advisor is told PROFILE_NOT_FOUND until risk has written something that advisors may see;
    the customer's part is there from the beginning, with version 0.
    """
    policies.may_l3(caller, "read", customer_id=customer_id)
    of = Of(caller.tenant, Layer.L3, customer_id)
    if as_of is not None or version is not None:
        return _past_l3(caller, of, as_of, version)
    missing = f"no {of}"
    if caller.agent == Agent.RISK:
        whole = _read_row(CustomerProfileL3, tenant=caller.tenant, customer_id=customer_id)
        settle_served(of.slot, whole)
        if whole is None:
            raise DomainError("PROFILE_NOT_FOUND", missing)
        return documents.l3_risk_view(whole)
    if caller.agent == Agent.CUSTOMER:
        document, beside_it = _through([_l3(caller.tenant, customer_id), _l1(caller.tenant, customer_id)])
        if isinstance(beside_it, CoreUnavailable):
            raise beside_it  # steps and levels follow from the assessment, and nobody knows whether there is one
        assert not isinstance(document, CoreUnavailable)
        return documents.l3_customer_view(customer_id, document, beside_it, at or now())
    [l3] = _through([_l3(caller.tenant, customer_id)])
    view = documents.l3_advisor_view(_there(l3, missing))
    return documents.masked(view) if caller.agent == Agent.ANALYST else view


def _past_l3(caller: Caller, of: Of, as_of: datetime | None, version: int | None) -> Document:
    if caller.agent == Agent.RISK:
        past, moment = _past(of, as_of, version)
        return _l3_shown(caller, history.row_of(past), None, moment)
    part = _part_of(caller)
    row: CustomerProfileL3 | None
    if as_of is not None:
        history.refuse_future(as_of)
    if version == 0 and caller.agent == Agent.CUSTOMER:
        row, moment = None, as_of or now()  # what it was before its first version
    elif version is not None:
        row, written, seen = parts.numbered(of, part, version)
        if as_of is not None and as_of < written:
            raise _came_later(version, written)
        moment = as_of or seen
    else:
        assert as_of is not None
        row, moment = parts.at_instant(of, part, as_of), as_of
    if caller.agent == Agent.CUSTOMER:
        beside = history.at_instant(Of(of.tenant, Layer.L1, of.customer_id), moment)
        document = documents.l3_document(row) if row else None
        return documents.l3_customer_view(of.customer_id, document, _past_l1(beside) if beside else None, moment)
    if row is None:
        raise _none_then(of, moment)
    return _l3_shown(caller, row, None, moment)


def _part_of(caller: Caller) -> documents.PartName:
    return "customer" if caller.agent == Agent.CUSTOMER else "advisor"


def _l3_shown(caller: Caller, row: Profile, l1: Document | None, moment: datetime) -> Document:
    """The same answer from a row that is no more."""
    assert isinstance(row, CustomerProfileL3)
    if caller.agent == Agent.RISK:
        return documents.l3_risk_view(row)
    document = documents.l3_document(row)
    if caller.agent == Agent.CUSTOMER:
        return documents.l3_customer_view(row.customer_id, document, l1, moment)
    view = documents.l3_advisor_view(document)
    return documents.masked(view) if caller.agent == Agent.ANALYST else view


# --- the past ---------------------------------------------------------------------------------------------------


def _past(of: Of, as_of: datetime | None, version: int | None) -> tuple[ProfileVersion, datetime]:
    """The version asked for, and the instant for which to show it."""
    if as_of is not None:
        history.refuse_future(as_of)
    if version is None:
        assert as_of is not None
        found = history.at_instant(of, as_of)
        if found is None:
            raise _none_then(of, as_of)
        return found, as_of
    found = history.numbered(of, version)
    if as_of is not None and as_of < found.at:
        raise _came_later(version, found.at)
    return found, as_of or history.seen_from(found)


def _none_then(of: Of, as_of: datetime) -> DomainError:
    return DomainError("PROFILE_NOT_FOUND", f"there was no {of} at {rfc3339(as_of)}")


def _came_later(version: int, at: datetime) -> DomainError:
    return DomainError("INVALID_REQUEST", f"version {version} came at {rfc3339(at)}, after as_of")


def _past_l1(version: ProfileVersion) -> Document:
    """1 SQL more for a version from before the core was asked: was it since? Errors: CORE_UNAVAILABLE (503): else a
    question about a moment ago would be answered with "no assessment" while the core is away."""
    row = history.row_of(version)
    assert isinstance(row, CustomerProfileL1)
    if not was_asked(row):
        standing = _l1_row(row.tenant, row.customer_id)
        if standing is not None and not was_asked(standing):
            _synced(row.tenant, row.customer_id)
    return documents.l1_document(row)


def versions_l1(
    *, caller: Caller, customer_id: str, limit: int = 20, before_version: int | None = None
) -> history.Page:
    """A page of l1's versions, newest first, with the names of fields that changed as far as this reader sees them.

    An analyst is not told who wrote. limit: 1 to 200. Cost: 1 SQL. Errors: as `read_l1`, where there has never been a
    profile too; INVALID_REQUEST (422).
    """
    policies.may_l1(caller, "read", customer_id=customer_id)

    def view(row: Profile, moment: datetime) -> Document:
        return _l1_shown(caller, documents.cached_document(row), moment)

    return _versions(caller, Of(caller.tenant, Layer.L1, customer_id), view, limit, before_version)


def versions_l2(
    *, caller: Caller, customer_id: str, advisor_id: str, limit: int = 20, before_version: int | None = None
) -> history.Page:
    """As `versions_l1`, of l2."""
    policies.may_l2(caller, "read", customer_id=customer_id, advisor_id=advisor_id)

    def view(row: Profile, _moment: datetime) -> Document:
        return documents.l2_view(documents.cached_document(row))

    return _versions(caller, Of(caller.tenant, Layer.L2, customer_id, advisor_id), view, limit, before_version)


def versions_l3(
    *, caller: Caller, customer_id: str, limit: int = 20, before_version: int | None = None
) -> history.Page:
    """As `versions_l1`, of l3. Whoever is not risk is told of versions that changed something for them, and not by
    whom: that risk wrote something which they may not see would tip off. Cost: 1 SQL for each 200 versions that are
    looked through."""
    policies.may_l3(caller, "read", customer_id=customer_id)

    def view(row: Profile, moment: datetime) -> Document:
        return _l3_shown(caller, row, None, moment)

    return _versions(caller, Of(caller.tenant, Layer.L3, customer_id), view, limit, before_version)


def _versions(caller: Caller, of: Of, view: history.View, limit: int, before_version: int | None) -> history.Page:
    if not history.MIN_LIMIT <= limit <= history.MAX_LIMIT:
        raise DomainError("INVALID_REQUEST", f"limit is {history.MIN_LIMIT} to {history.MAX_LIMIT}")
    if caller.agent != Agent.RISK and of.layer == Layer.L3:
        part = _part_of(caller)
        found = parts.page(of, part, view=view, limit=limit, before_version=before_version)
        if not found.items and before_version is None and part != "customer":  # the customer's is always there
            raise DomainError("PROFILE_NOT_FOUND", f"there has never been a {of}")
        return found
    found = history.page(of, view=view, limit=limit, before_version=before_version)
    if caller.agent != Agent.ANALYST:
        return found
    return replace(found, items=[replace(entry, author="", agent="", trace_id="") for entry in found.items])


def _there(document: Answer, missing: str) -> Document:
    if isinstance(document, CoreUnavailable):
        raise document
    if document is None:
        raise DomainError("PROFILE_NOT_FOUND", missing)
    return document


# --- read-through -----------------------------------------------------------------------------------------------


def _through(wanted: Sequence[tuple[cache.Slot, Loader]]) -> list[Answer]:
    """1. Ask the cache for all at once; 2. load what it lacks and nobody else loads; 3. fill that under the generations
    of step 1; 4. of what somebody else loads, ask again in a moment, and after PATIENCE seconds load it anyway."""
    if transaction.get_connection().in_atomic_block:
        loaded = [load() for _slot, load in wanted]
        return [one.unknown or one.document for one in loaded]
    found = cache.read([slot for slot, _load in wanted])
    answer: list[Answer] = [hit.document for hit in found]
    if None not in answer:
        return answer
    places, turn, patient_until = list(range(len(wanted))), 0, 0.0
    while True:
        loads, waits = [], []
        for place, hit in zip(places, found, strict=True):
            answer[place] = hit.document
            if hit.part is Part.LOAD:
                loads.append((place, hit.generation))
            elif hit.part is Part.WAIT:
                waits.append((place, hit.generation))
        if waits:
            patient_until = patient_until or time.monotonic() + PATIENCE
            if time.monotonic() >= patient_until:
                loads, waits = loads + waits, []
        if loads:
            _load(wanted, loads, answer)
        if not waits:
            return answer
        time.sleep(_PAUSES[min(turn, len(_PAUSES) - 1)])
        places, turn = [place for place, _generation in waits], turn + 1
        found = cache.read([wanted[place][0] for place in places])


def _load(wanted: Sequence[tuple[cache.Slot, Loader]], loads: Sequence[tuple[int, str]], answer: list[Answer]) -> None:
    """Into `answer`, and into the cache."""
    fills, given_up = [], []
    try:
        for place, generation in loads:
            slot, load = wanted[place]
            # Without a generation there is no lease that would keep others from loading.
            loaded = load() if generation else flights.share(slot, load, patience=PATIENCE)
            answer[place] = loaded.unknown or loaded.document
            if loaded.keep:
                fills.append((slot, generation, loaded.document))
            else:
                given_up.append((slot, generation))
    except BaseException:
        cache.give_up([(wanted[place][0], generation) for place, generation in loads])
        raise
    cache.fill(fills)
    cache.give_up(given_up)


def _l1(tenant: str, customer_id: str) -> tuple[cache.Slot, Loader]:
    slot = cache.Slot(tenant, Layer.L1.value, customer_id)

    def load() -> Loaded:
        row = _l1_row(tenant, customer_id)
        if is_due(row):
            try:
                # After the write the row is read again: the copy that is cached is one that was committed. (This
                # reader's own generation went with the write.)
                row = _synced(tenant, customer_id) or row
            except CoreUnavailable as away:
                if not was_asked(row):
                    return Loaded(None, unknown=away, keep=False)
                # What the core said before is shown, and the next reader asks again.
                logger.warning("l1 is shown without the core, which did not answer")
                settle_served(slot, row)
                return Loaded(documents.l1_document(row) if row else None, keep=False)
        return Loaded(documents.l1_document(row) if row else None, keep=settle_served(slot, row))

    return slot, load


def _read_row(model: type[P], **ids: str) -> P | None:
    """The row, and whether its version is settled. 1 SQL."""
    row: P | None = with_unsettled(model.objects.filter(**ids)).first()
    return row


def _l1_row(tenant: str, customer_id: str) -> CustomerProfileL1 | None:
    return _read_row(CustomerProfileL1, tenant=tenant, customer_id=customer_id)


def _synced(tenant: str, customer_id: str) -> CustomerProfileL1 | None:
    """The row after a new version; None where the core had nothing new. Errors: CORE_UNAVAILABLE."""
    try:
        written = sync_l1_from_core(tenant=tenant, customer_id=customer_id)
    except CoreUnavailable:
        raise
    except DatabaseError as error:
        raise CoreUnavailable(f"the core's part of l1 could not be read ({type(error).__name__})") from error
    return _l1_row(tenant, customer_id) if written else None


def _l2(tenant: str, customer_id: str, advisor_id: str) -> tuple[cache.Slot, Loader]:
    slot = cache.Slot(tenant, Layer.L2.value, customer_id, advisor_id)

    def load() -> Loaded:
        row = _read_row(CustomerProfileL2, tenant=tenant, customer_id=customer_id, advisor_id=advisor_id)
        return Loaded(documents.l2_document(row) if row else None, keep=settle_served(slot, row))

    return slot, load


def _l3(tenant: str, customer_id: str) -> tuple[cache.Slot, Loader]:
    slot = cache.Slot(tenant, Layer.L3.value, customer_id)

    def load() -> Loaded:
        row = _read_row(CustomerProfileL3, tenant=tenant, customer_id=customer_id)
        return Loaded(documents.l3_for_others(row), keep=settle_served(slot, row))

    return slot, load
