"""Three layers of a customer: what the customer told us (l1), an advisor's view (l2), risk's view (l3).

Each writer has columns of its own, so that a write replaces the writer's fields and cannot touch another's.
Whoever changes a row, by whatever means of the ORM, leaves a `profile_change` row in the same transaction: what the
cache holds of it is deleted after the commit, and the sweeper finishes what a dead process left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Self

from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.fields import CanonicalJSONField, IdField
from config.base.ids import check_id
from memory.erasure.tombstones import refuse_erased


class Layer(models.TextChoices):
    L1 = "l1", _("what the customer told us")
    L2 = "l2", _("the advisor's view")
    L3 = "l3", _("risk's view")


class ProfileQuerySet(models.QuerySet[Any]):
    """Bulk writes raise versions and invalidate the cache as single ones do."""

    def update(self, **kwargs: Any) -> int:
        """As Django's, plus: versions rise, and the cached copies of the rows go after the commit.

        Errors: ValueError when it would move a row to another tenant, customer or advisor.
        """
        if moved := {"tenant", "customer_id", "advisor_id"} & set(kwargs):
            raise ValueError(f"a profile does not move: {', '.join(sorted(moved))} cannot be updated")
        kwargs.setdefault("version", models.F("version") + 1)
        kwargs.setdefault("updated_at", now())
        with transaction.atomic(using=self.db):
            touched = list(self.order_by().select_for_update())
            changed = super().update(**kwargs)
            record_changes(touched)
        return changed

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """As Django's, plus the invalidation. Errors: ValueError for an upsert, which would raise no version."""
        if kwargs.get("update_conflicts"):
            raise ValueError("an upsert would change profiles without a new version; use update() or the services")
        rows = list(objs)
        for row in rows:
            row.check_ids()
        with transaction.atomic(using=self.db):
            made = super().bulk_create(rows, *args, **kwargs)
            for tenant in {row.tenant for row in rows}:
                refuse_erased(tenant, *(row.customer_id for row in rows if row.tenant == tenant))
            record_changes(made)
        return made


class Profile(models.Model):
    """What the layers share. version: 1 at creation, one more with each save; it is the ETag over HTTP."""

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
    _version_read: int | None = None

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.layer} {self.customer_id}"

    def save(self, *args: Any, update_fields: Iterable[str] | None = None, **kwargs: Any) -> None:
        """Saves a new version, with its `profile_change`, or nothing.

        A first version asks whether the customer was erased (1 query); a later one need not, for an erasure waits for
        the row and removes it. Errors: INVALID_ID (422), CUSTOMER_ERASED (410).
        """
        self.check_ids()
        made = self._state.adding
        if not made:
            if self.version == self._version_read:
                self.version += 1
            self.updated_at = now()
        if update_fields is not None:
            update_fields = {*update_fields, "version", "updated_at"}
        with transaction.atomic(using=kwargs.get("using")):
            super().save(*args, update_fields=update_fields, **kwargs)
            if made:
                refuse_erased(self.tenant, self.customer_id)
        self._version_read = self.version

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic(using=kwargs.get("using")):
            return super().delete(*args, **kwargs)

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any]) -> Self:
        row = super().from_db(db, field_names, values)
        if "version" in field_names:
            row._version_read = row.version
        return row

    def refresh_from_db(self, using: str | None = None, fields: Any = None, from_queryset: Any = None) -> None:
        super().refresh_from_db(using=using, fields=fields, from_queryset=from_queryset)
        if fields is None or "version" in fields:
            self._version_read = self.__dict__.get("version")

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

    class Meta:
        app_label = "memory"
        db_table = "customer_profile_l1"
        verbose_name = _("customer profile")
        verbose_name_plural = _("customer profiles")
        constraints = [models.UniqueConstraint(fields=["tenant", "customer_id"], name="profile_l1_customer")]


class CustomerProfileL2(Profile):
    """payload: the advisor agent's fields. asset_snapshot: the authoritative copy of the cached advisor snapshot."""

    layer = Layer.L2

    advisor_id = IdField(_("advisor"))
    asset_snapshot = CanonicalJSONField(_("asset snapshot"), null=True, blank=True)
    snapshot_at = models.DateTimeField(_("snapshot taken"), null=True, blank=True)
    core_as_of = models.DateTimeField(_("core as of"), null=True, blank=True)

    class Meta:
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
    """payload: what others may see, entry by entry. internal: risk's alone; no cache ever holds it."""

    layer = Layer.L3

    internal = CanonicalJSONField(_("internal"), default=dict, blank=True)

    class Meta:
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

    class Meta:
        app_label = "memory"
        db_table = "profile_change"
        verbose_name = _("profile change")
        verbose_name_plural = _("profile changes")
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.layer} {self.customer_id} {self.advisor_id}"


def record_changes(profiles: Iterable[Profile]) -> None:
    """In the transaction of a change: its outbox rows now, the deletion of the cached copies after the commit.

    A rollback takes the rows along and deletes nothing. With Redis away the rows stay for the sweeper.
    """
    from memory.profiles import cache

    changes = [
        ProfileChange(
            tenant=profile.tenant,
            layer=profile.layer,
            customer_id=profile.customer_id,
            advisor_id=getattr(profile, "advisor_id", ""),
        )
        for profile in profiles
    ]
    if changes:
        ProfileChange.objects.bulk_create(changes, batch_size=500)
        transaction.on_commit(lambda: cache.drop_quietly(changes))


def _on_change(sender: type[models.Model], instance: Profile, **_: Any) -> None:
    record_changes([instance])


for _model in (CustomerProfileL1, CustomerProfileL2, CustomerProfileL3):
    post_save.connect(_on_change, sender=_model, dispatch_uid=f"profiles.{_model.layer}.saved")
    post_delete.connect(_on_change, sender=_model, dispatch_uid=f"profiles.{_model.layer}.deleted")
