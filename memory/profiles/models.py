"""Three layers of a customer: what the customer told us (l1), an advisor's view (l2), risk's view (l3).

Each writer has columns of its own, so that a write replaces the writer's fields and cannot touch another's.
Whoever changes a row, by whatever means of the ORM, leaves in the same transaction a `profile_version` row, which is
what as-of reads answer from, and a `profile_change` row: what the cache holds of it is deleted after the commit, and
the sweeper finishes what a dead process left. `recording.py` writes both.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField
from config.base.ids import check_id
from config.base.trace import current_trace_id
from memory.erasure.tombstones import refuse_erased
from memory.profiles import recording

# Rows of one statement.
BATCH = recording.BATCH


class Layer(models.TextChoices):
    L1 = "l1", _("what the customer told us")
    L2 = "l2", _("the advisor's view")
    L3 = "l3", _("risk's view")


class ProfileQuerySet(models.QuerySet[Any]):
    """Bulk writes make versions and invalidate the cache as single ones do."""

    def update(self, **kwargs: Any) -> int:
        """As Django's, plus: each row gets its next version, and its cached copy goes after the commit.

        Cost: for each 500 rows 3 SQL more than the update (lock, read back, versions) and 1 for the outbox.
        Errors: ValueError when it would move a row to another tenant, customer or advisor, or number versions itself.
        """
        key = self.model._meta.pk.name
        if moved := {"tenant", "customer_id", "advisor_id", "pk", key} & set(kwargs):
            # By another key the row would not be found again below, and have no version.
            raise ValueError(f"a profile does not move: {', '.join(sorted(moved))} cannot be updated")
        if set(kwargs) & {"version", *self.model._kept}:
            raise ValueError("versions number themselves; leave `version` and `shown` out of the update")
        if self.query.is_sliced:
            raise TypeError("Cannot update a query once a slice has been taken.")
        author = recording.current_author()
        kwargs.setdefault("updated_by", author.name)
        kwargs.setdefault("trace_id", current_trace_id())
        changed = 0
        with transaction.atomic(using=self.db):
            standing = list(self.order_by().select_for_update().values_list("pk", "updated_at"))
            for start in range(0, len(standing), BATCH):
                batch = standing[start : start + BATCH]
                pks = [pk for pk, _at in batch]
                # Exactly the rows that are locked: one that came to match meanwhile would have no version of its own.
                rows = models.QuerySet.filter(self, pk__in=pks)
                moment = recording.after(max(at for _pk, at in batch))
                changed += super(ProfileQuerySet, rows).update(
                    **{**kwargs, "version": models.F("version") + 1, "updated_at": moment}
                )
                recording.record_written(self.model._base_manager.using(self.db).filter(pk__in=pks))
        return changed

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """As Django's, plus versions and invalidation: 3 SQL more for each 500 rows.

        Errors: ValueError for an upsert, or for rows that may be skipped: neither says what it has written.
        """
        if kwargs.get("update_conflicts") or kwargs.get("ignore_conflicts"):
            raise ValueError("an upsert would change profiles without a new version; use update() or the services")
        rows = list(objs)
        author = recording.current_author()
        for row in rows:
            row.check_ids()
            row.updated_by, row.trace_id = author.name or row.updated_by, row.trace_id or current_trace_id()
        with transaction.atomic(using=self.db):
            made = super().bulk_create(rows, *args, **kwargs)
            for tenant in {row.tenant for row in rows}:
                refuse_erased(tenant, *(row.customer_id for row in rows if row.tenant == tenant))
            recording.go_on_numbering(made)
            recording.record_written(made)
        return made

    def delete(self) -> tuple[int, dict[str, int]]:
        """As Django's, plus a last version of each that says so: 3 SQL more for each 500 rows."""
        with transaction.atomic(using=self.db), recording.gathered_deletions():
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


def _outermost(using: str | None) -> object | None:
    """The transaction of this thread, as an object; None outside of any."""
    blocks = transaction.get_connection(using).atomic_blocks
    return blocks[0] if blocks else None


class Profile(models.Model):
    """What the layers share. version: 1 at creation, one more with each save; it is the ETag over HTTP.

    A profile that is created again after a deletion goes on from the number it had.
    updated_at: the version's instant, later than that of the version before it whatever the clock says.
    """

    layer: ClassVar[Layer]

    tenant = IdField(_("tenant"), default="default")
    customer_id = IdField(_("customer"))
    version = models.PositiveIntegerField(_("version"), default=1, editable=False)
    payload = CanonicalJSONField(_("fields"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created"), default=now, editable=False)
    updated_at = models.DateTimeField(_("updated"), default=now, editable=False)
    updated_by = IdField(_("updated by"), blank=True, default="", editable=False)
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="", editable=False)

    objects = ProfileQuerySet.as_manager()
    _held_in: object | None = None
    _kept: ClassVar[tuple[str, ...]] = ()  # columns that no writer sets: they are read along with the number

    class Meta:
        abstract = True
        # Whoever writes by `_base_manager` makes versions too.
        base_manager_name = "objects"

    def __str__(self) -> str:
        return f"{self.layer} {self.customer_id}"

    def save(self, *args: Any, update_fields: Iterable[str] | None = None, **kwargs: Any) -> None:
        """Saves the next version of the row as it stands, with its `profile_version` and `profile_change`, or nothing.

        The number comes from the row under its lock, not from what this instance read. Cost beside Django's own
        query: the lock (none after `hold`), the version, the outbox row; a first version also asks whether
        the customer was erased, which a later one need not, for an erasure waits for the row and removes it, and
        which versions there were. Errors: INVALID_ID (422), CUSTOMER_ERASED (410).
        """
        self.check_ids()
        using = kwargs.get("using")
        partly = update_fields is not None or bool(self.get_deferred_fields())
        if update_fields is not None:
            update_fields = {*update_fields, "version", "updated_at", "updated_by", "trace_id"}
        with transaction.atomic(using=using):
            made = not self._number_after_the_standing_row(using)
            author = recording.current_author()
            self.updated_by, self.trace_id = author.name, current_trace_id()
            super().save(*args, update_fields=update_fields, **kwargs)
            if made:
                refuse_erased(self.tenant, self.customer_id)
                recording.go_on_numbering([self])
            stored = type(self)._base_manager.using(using).filter(pk=self.pk) if partly else [self]
            recording.record_written(stored)

    def hold(self) -> None:
        """Said by who has read the row under its lock: the next save in this transaction need not read it again."""
        self._held_in = _outermost(None)

    def _number_after_the_standing_row(self, using: str | None) -> bool:
        """Takes the row's lock and the number after its version; False where there is no row yet, or no more."""
        if self._state.adding:
            return False
        held_in, self._held_in = self._held_in, None
        if held_in is not None and held_in is _outermost(using):
            standing: tuple[Any, ...] | None = (self.version, self.updated_at)
        else:
            rows = type(self)._base_manager.using(using).select_for_update().filter(pk=self.pk)
            standing = rows.values_list("version", "updated_at", *self._kept).first()
        if standing is None:
            return False
        for name, value in zip(self._kept, standing[2:], strict=False):
            setattr(self, name, value)
        self.version, self.updated_at = standing[0] + 1, recording.after(standing[1])
        return True

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic(using=kwargs.get("using")), recording.gathered_deletions():
            return super().delete(*args, **kwargs)

    def check_ids(self) -> None:
        """An id that is no key part would be committed and then have no cached copy to drop. Errors: INVALID_ID."""
        for name in ("tenant", "customer_id", "advisor_id"):
            if hasattr(self, name):
                check_id(name, getattr(self, name))


class CustomerProfileL1(Profile):
    """payload: the customer agent's fields. core: the core sync's, a risk assessment among them."""

    layer = Layer.L1

    core = CanonicalJSONField(_("from the core system"), default=dict, blank=True)
    core_synced_at = models.DateTimeField(_("read from the core"), null=True, blank=True, editable=False)

    class Meta(Profile.Meta):
        app_label = "memory"
        db_table = "customer_profile_l1"
        verbose_name = _("customer profile")
        verbose_name_plural = _("customer profiles")
        constraints = [models.UniqueConstraint(fields=["tenant", "customer_id"], name="profile_l1_customer")]


class CustomerProfileL2(Profile):
    """payload: the advisor agent's fields. asset_snapshot: the authoritative copy of the cached advisor snapshot.

    snapshot_confirmed_at: when the newest load began that found the figures of the copy again; no version tells of it.
    """

    layer = Layer.L2

    advisor_id = IdField(_("advisor"))
    asset_snapshot = CanonicalJSONField(_("asset snapshot"), null=True, blank=True)
    snapshot_at = models.DateTimeField(_("snapshot taken"), null=True, blank=True)
    core_as_of = models.DateTimeField(_("core as of"), null=True, blank=True)
    snapshot_confirmed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta(Profile.Meta):
        app_label = "memory"
        db_table = "customer_profile_l2"
        verbose_name = _("advisor's profile of a customer")
        verbose_name_plural = _("advisors' profiles of customers")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "customer_id", "advisor_id"], name="profile_l2_customer_advisor")
        ]
        indexes = [
            # the console: an advisor's customers
            models.Index(fields=["tenant", "advisor_id"], name="profile_l2_advisor"),
        ]

    def __str__(self) -> str:
        return f"l2 {self.customer_id} {self.advisor_id}"


class CustomerProfileL3(Profile):
    """payload: what others may see, entry by entry. internal: risk's alone; no cache ever holds it.

    shown: of the advisor's and the customer's part (`documents.Mark`) how often it has changed, since when it is as it
    is, its hash, and the row's version that changed it; `recording.record_written` keeps it, whatever way the row was
    written.
    """

    layer = Layer.L3
    _kept = ("shown",)

    internal = CanonicalJSONField(_("internal"), default=dict, blank=True)
    shown = CanonicalJSONField(default=dict, blank=True, editable=False)

    class Meta(Profile.Meta):
        app_label = "memory"
        db_table = "customer_profile_l3"
        verbose_name = _("risk profile")
        verbose_name_plural = _("risk profiles")
        constraints = [models.UniqueConstraint(fields=["tenant", "customer_id"], name="profile_l3_customer")]


class ProfileChange(models.Model):
    """Outbox of invalidations: a row until the cached copy is surely gone.

    swept_at: when the sweeper first deleted the key. The row stays two seconds longer and the key is deleted once
    more, for a Redis that crashed may have forgotten the last second of what it did.
    """

    tenant = IdField(default="default")
    layer = models.CharField(max_length=2, choices=Layer)
    customer_id = IdField()
    advisor_id = IdField(blank=True, default="")
    created_at = models.DateTimeField(default=now)
    swept_at = models.DateTimeField(null=True, blank=True)
    # The `profile_version` row that the sweeper settles where its writer died; none where nothing was written.
    version_row = models.BigIntegerField(null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "profile_change"
        verbose_name = _("profile change")
        verbose_name_plural = _("profile changes")
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.layer} {self.customer_id} {self.advisor_id}"


class VersionQuerySet(models.QuerySet[Any]):
    """Versions are written once: nothing updates them, and only an erasure or the end of their period deletes them."""

    def update(self, **kwargs: Any) -> int:
        raise TypeError("versions of profiles do not change")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise TypeError("versions of profiles are not deleted; an erasure removes them with erase()")

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def settle(self, moment: datetime) -> int:
        """Says from when these are what readers are given; of one that has been told already nothing changes."""
        return super().filter(visible_at__isnull=True).update_row(visible_at=moment)

    def erase(self) -> int:
        """For the erasure of a customer or tenant alone. Answers how many went."""
        return super().delete()[0]

    def update_row(self, **columns: Any) -> int:
        return super().update(**columns)


class ProfileVersion(models.Model):
    """One version of one profile, as it was written: immutable.

    at: when it was written, under the row's lock, so it grows with `version`; also the row's `updated_at`.
    visible_at: from when readers were given it. Nobody can know it before the commit, so it is told once, right after
    it (by the writer, or by the sweeper for a writer that died), and is the instant that as-of reads compare with.
    author, agent: whom the writer acted for and which agent or service it was; both empty past the services.
    columns: the row's other columns, those of no reader too. document_hash: SHA-256 of what
    the cache holds of it, before anything is left out for being none of the schema's, and with its own version
    (documents.whole_document).
    deleted: the profile was deleted as this version; the hash is empty, and so are the columns but for l3's `shown`.
    """

    tenant = IdField(_("tenant"), default="default")
    layer = models.CharField(_("layer"), max_length=2, choices=Layer)
    customer_id = IdField(_("customer"))
    advisor_id = IdField(_("advisor"), blank=True, default="")
    version = models.PositiveIntegerField(_("version"))
    at = models.DateTimeField(_("written"))
    visible_at = models.DateTimeField(_("visible from"), null=True)
    author = IdField(_("author"), blank=True, default="")
    agent = models.CharField(_("agent or service"), max_length=32, blank=True, default="")
    trace_id = models.CharField(_("trace"), max_length=32, blank=True, default="")
    schema_version = models.PositiveSmallIntegerField(_("schema version"), default=1)
    deleted = models.BooleanField(_("deleted"), default=False)
    columns = CanonicalJSONField(_("columns"), default=dict)
    document_hash = models.CharField(_("hash of the cached document"), max_length=64, blank=True, default="")

    objects = VersionQuerySet.as_manager()

    class Meta:
        app_label = "memory"
        db_table = "profile_version"
        base_manager_name = "objects"
        verbose_name = _("version of a profile")
        verbose_name_plural = _("versions of profiles")
        constraints = [
            # also serves: the version at an instant, the newest, a page of the history
            models.UniqueConstraint(
                fields=["tenant", "layer", "customer_id", "advisor_id", "version"], name="profile_version_number"
            )
        ]
        indexes = [
            # erasure, and the admin's search: all layers of a customer
            models.Index(fields=["tenant", "customer_id"], name="profile_version_customer"),
        ]

    def __str__(self) -> str:
        return f"{self.layer} {self.customer_id} {self.advisor_id} {self.version}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("versions of profiles do not change")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("versions of profiles are not deleted; an erasure removes them")


for _model in (CustomerProfileL1, CustomerProfileL2, CustomerProfileL3):
    # Fixtures, which call no save() and bring their versions along; and cascades, which call neither delete().
    post_save.connect(recording.on_saved, sender=_model, dispatch_uid=f"profiles.{_model.layer}.saved")
    post_delete.connect(recording.on_deleted, sender=_model, dispatch_uid=f"profiles.{_model.layer}.deleted")
