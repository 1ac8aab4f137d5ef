"""Views of the queue under a name: a person's own, and those that a manager shares with the tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.people import admit_staff
from guard.access.roles import may, tenant_of
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.console.models import SavedView

SHARE = "risk.share_savedview"
MOST = 30  # of one person
SHOWN = 60


@dataclass(frozen=True)
class View:
    pk: int
    name: str
    query: str
    shared: bool
    own: bool
    owner: str


def views_of(*, tenant: str, person: Any) -> list[View]:
    """A person's own and the shared ones of their tenant, by name. 1 query."""
    rows = SavedView.objects.filter(tenant=tenant).filter(Q(owner_id=person.pk) | Q(shared=True))
    return [
        View(row.pk, row.name, row.query, row.shared, row.owner_id == person.pk, row.owner.get_username())  # type: ignore[attr-defined]
        for row in rows.select_related("owner").order_by("name", "pk")[:SHOWN]
    ]


def may_share(person: Any) -> bool:
    return may(person, SHARE)


def save_view(*, person: User, name: str, query: str, shared: bool = False) -> SavedView:
    """Keeps a view; one of theirs of the same name is replaced. Sharing, and a change of what was shared, is recorded.

    Errors: FORBIDDEN to share without the permission; INVALID_REQUEST for a name that is empty or too long, and for
    more than MOST views.
    """
    tenant = tenant_of(person)
    if shared:
        admit_staff(person, SHARE, action="share", object_type="saved_view", by_role=True)
    name = " ".join(name.split())
    most = SavedView._meta.get_field("name").max_length or 0
    if not name or len(name) > most:
        raise DomainError(
            "INVALID_REQUEST", f"a name has 1 to {most} characters; this one has {len(name)}", field="name"
        )
    if len(query) > (SavedView._meta.get_field("query").max_length or 0):
        raise DomainError("INVALID_REQUEST", "the view's address is too long to keep", field="query")
    with transaction.atomic():
        own = SavedView.objects.select_for_update().filter(tenant=tenant, owner=person)
        there = {view.name: view for view in own}
        view = there.get(name)
        if view is None and len(there) >= MOST:
            raise DomainError("INVALID_REQUEST", f"a person keeps {MOST} views; remove one first", field="name")
        before = view is not None and view.shared
        view = view or SavedView(tenant=tenant, owner=person, name=name)
        view.query, view.shared, view.updated_at = query, shared, now()
        try:
            with transaction.atomic():
                view.save()
        except IntegrityError as error:  # the same name from two windows
            raise DomainError("INVALID_REQUEST", "a view of this name was saved a moment ago", field="name") from error
        if shared or before:
            _record(person, tenant, view, "share" if shared else "withdraw")
    return view


def remove_view(*, person: User, view_id: int) -> bool:
    """Removes a view of theirs; False for anybody else's, or none."""
    tenant = tenant_of(person)
    with transaction.atomic():
        view = SavedView.objects.select_for_update().filter(pk=view_id, tenant=tenant, owner=person).first()
        if view is None:
            return False
        if view.shared:
            _record(person, tenant, view, "remove")
        view.delete()
        return True


def _record(person: User, tenant: str, view: SavedView, deed: str) -> None:
    record(
        tenant=tenant,
        event_type=EventType.CONFIG_CHANGE,
        decision=Decision.CHANGED,
        actor_type=ActorType.STAFF,
        actor_id=person.get_username(),
        object_type="saved_view",
        object_id=str(view.pk),
        input_summary={"action": deed},
    )
