"""The core system's facts as we see them, and the marks that tell the scanner whose facts changed.

The six `core_*` fact tables are written only by `memory.core.importer` (commands import_core, seed_demo), and only
where CORE_DATABASE_URL is unset. No foreign key points at them: rooms hold ids, for the core may be another server.
An empty optional column is "no evidence": text columns hold '', the others NULL; booleans have three values.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from config.base.clock import now
from config.base.errors import DomainError
from config.base.fields import IdField, WholeTextField
from memory.core.fields import ExactDecimalField

# `valid_from` of a row that counts at any time. Not NULL: a unique constraint would let NULLs repeat. The first
# instant that MySQL's DATETIME can hold.
ALWAYS = datetime(1000, 1, 1, tzinfo=UTC)


def refuse_if_external() -> None:
    """Errors: CORE_READ_ONLY (403) where the core is another system's database."""
    if settings.CORE_IS_EXTERNAL:
        raise DomainError("CORE_READ_ONLY", "CORE_DATABASE_URL is set: the core system is read-only from here")


class CoreQuerySet(models.QuerySet[Any]):
    """Refuses writes on an external core, also to code that names a database with `using()`."""

    def update(self, **kwargs: Any) -> int:
        refuse_if_external()
        return super().update(**kwargs)

    def delete(self) -> tuple[int, dict[str, int]]:
        refuse_if_external()
        return super().delete()

    def bulk_create(self, *args: Any, **kwargs: Any) -> list[Any]:
        refuse_if_external()
        return super().bulk_create(*args, **kwargs)

    def bulk_update(self, *args: Any, **kwargs: Any) -> int:
        refuse_if_external()
        return super().bulk_update(*args, **kwargs)


class CoreFact(models.Model):
    """What all fact tables share."""

    tenant = IdField(_("tenant"), default="default")

    objects = CoreQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        refuse_if_external()
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        refuse_if_external()
        return super().delete(*args, **kwargs)


class CustomerKind(models.TextChoices):
    NATURAL = "natural", _("natural person")
    ENTITY = "entity", _("entity")


class InvestorType(models.TextChoices):
    ORDINARY = "ordinary", _("ordinary investor")
    PROFESSIONAL = "professional", _("professional investor")


class AssetClass(models.TextChoices):
    CASH = "cash", _("cash")
    FIXED_INCOME = "fixed_income", _("fixed income")
    MIXED = "mixed", _("mixed")
    EQUITY = "equity", _("equity")
    ALTERNATIVE = "alternative", _("alternative")
    DERIVATIVE = "derivative", _("derivative")


class TradeType(models.TextChoices):
    BUY = "buy", _("buy")
    SELL = "sell", _("sell")
    SWITCH_IN = "switch_in", _("switch in")
    SWITCH_OUT = "switch_out", _("switch out")
    TRANSFER_IN = "transfer_in", _("transfer in")
    TRANSFER_OUT = "transfer_out", _("transfer out")
    DIVIDEND = "dividend", _("dividend")
    INTEREST = "interest", _("interest")


class TradeStatus(models.TextChoices):
    EXECUTED = "executed", _("executed")
    CANCELLED = "cancelled", _("cancelled")
    REVERSED = "reversed", _("reversed")


class Channel(models.TextChoices):
    BRANCH = "branch", _("branch")
    ONLINE = "online", _("online")
    PHONE = "phone", _("phone")


class SettleMethod(models.TextChoices):
    CASH = "cash", _("in cash")
    TRANSFER = "transfer", _("by transfer")


RISK_LEVELS = [(level, f"R{level}") for level in range(1, 6)]
TOLERANCE_LEVELS = [(level, f"C{level}") for level in range(1, 6)]


class CoreCustomer(CoreFact):
    """A customer from `valid_from` on, until a row with a later one."""

    customer_id = IdField(_("customer"))
    valid_from = models.DateTimeField(_("valid from"), default=ALWAYS)
    name = models.CharField(_("name"), max_length=200, blank=True, default="")
    kind = models.CharField(_("kind"), max_length=16, choices=CustomerKind, blank=True, default="")
    birth_date = models.DateField(_("birth date"), null=True, blank=True)
    investor_type = models.CharField(_("investor type"), max_length=16, choices=InvestorType, blank=True, default="")
    opened_at = models.DateTimeField(_("account opened"), null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "core_customer"
        verbose_name = _("core customer")
        verbose_name_plural = _("core customers")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "customer_id", "valid_from"], name="core_customer_row"),
        ]

    def __str__(self) -> str:
        return self.customer_id


class CoreProduct(CoreFact):
    """A product from `valid_from` on. risk_level 1 to 5, the higher of the issuer's and the distributor's."""

    product_id = IdField(_("product"))
    valid_from = models.DateTimeField(_("valid from"), default=ALWAYS)
    issuer_id = IdField(_("issuer"), blank=True, default="")
    asset_class = models.CharField(_("asset class"), max_length=16, choices=AssetClass, blank=True, default="")
    risk_level = models.PositiveSmallIntegerField(_("product risk level"), choices=RISK_LEVELS)
    is_complex = models.BooleanField(_("complex"), null=True, blank=True)
    is_cash_like = models.BooleanField(_("cash-like"), null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "core_product"
        verbose_name = _("core product")
        verbose_name_plural = _("core products")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "product_id", "valid_from"], name="core_product_row"),
        ]

    def __str__(self) -> str:
        return self.product_id


class CoreAssessment(CoreFact):
    """A risk assessment. c_level 1 to 5; is_lowest: the lowest class of tolerance, to whom nothing above is sold."""

    customer_id = IdField(_("customer"))
    assessed_at = models.DateTimeField(_("assessed"))
    c_level = models.PositiveSmallIntegerField(_("risk tolerance"), choices=TOLERANCE_LEVELS)
    is_lowest = models.BooleanField(_("lowest tolerance"), null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "core_assessment"
        verbose_name = _("core assessment")
        verbose_name_plural = _("core assessments")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "customer_id", "assessed_at"], name="core_assessment_row"),
        ]

    def __str__(self) -> str:
        return f"{self.customer_id} C{self.c_level}"


class CoreAssignment(CoreFact):
    """An advisor has a customer in `[valid_from, valid_to)`; no valid_to: until further notice."""

    advisor_id = IdField(_("advisor"))
    customer_id = IdField(_("customer"))
    valid_from = models.DateTimeField(_("valid from"), default=ALWAYS)
    valid_to = models.DateTimeField(_("valid to"), null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "core_assignment"
        verbose_name = _("core assignment")
        verbose_name_plural = _("core assignments")
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "advisor_id", "customer_id", "valid_from"], name="core_assignment_row"
            ),
        ]
        indexes = [
            # who has this customer (alert page)
            models.Index(fields=["tenant", "customer_id"], name="core_assignment_customer"),
        ]

    def __str__(self) -> str:
        return f"{self.advisor_id} {self.customer_id}"


class CorePosition(CoreFact):
    """What a customer held at the close of the day `as_of`, in CNY. Cash is a product that is cash-like."""

    customer_id = IdField(_("customer"))
    product_id = IdField(_("product"))
    as_of = models.DateField(_("as of"))
    quantity = ExactDecimalField(_("quantity"), null=True, blank=True)
    market_value = ExactDecimalField(_("market value"))

    class Meta:
        app_label = "memory"
        db_table = "core_position"
        verbose_name = _("core position")
        verbose_name_plural = _("core positions")
        constraints = [
            # also serves "all snapshots of these customers"
            models.UniqueConstraint(fields=["tenant", "customer_id", "as_of", "product_id"], name="core_position_row"),
        ]
        indexes = [
            # whose facts change with this product
            models.Index(fields=["tenant", "product_id", "customer_id"], name="core_position_product"),
        ]

    def __str__(self) -> str:
        return f"{self.customer_id} {self.product_id} {self.as_of}"


class CoreTrade(CoreFact):
    """One version of a trade; the highest version is its final state, and the earlier ones are kept.

    amount and fee are in `currency`; fx_cny and fx_usd are CNY and USD for one unit of it.
    """

    trade_id = IdField(_("trade"))
    version = models.PositiveIntegerField(_("version"))
    customer_id = IdField(_("customer"))
    product_id = IdField(_("product"), blank=True, default="")
    advisor_id = IdField(_("advisor"), blank=True, default="")
    trade_type = models.CharField(_("type"), max_length=16, choices=TradeType)
    traded_at = models.DateTimeField(_("traded"))
    amount = ExactDecimalField(_("amount"))
    currency = models.CharField(_("currency"), max_length=3, blank=True, default="")
    fx_cny = ExactDecimalField(_("CNY for one unit"), null=True, blank=True)
    fx_usd = ExactDecimalField(_("USD for one unit"), null=True, blank=True)
    quantity = ExactDecimalField(_("quantity"), null=True, blank=True)
    price = ExactDecimalField(_("price"), null=True, blank=True)
    fee = ExactDecimalField(_("fee"), null=True, blank=True)
    status = models.CharField(_("status"), max_length=16, choices=TradeStatus)
    channel = models.CharField(_("channel"), max_length=16, choices=Channel, blank=True, default="")
    settle_method = models.CharField(_("settled"), max_length=16, choices=SettleMethod, blank=True, default="")
    cross_border = models.BooleanField(_("cross-border"), null=True, blank=True)
    plan_id = IdField(_("savings plan"), blank=True, default="")
    solicited = models.BooleanField(_("solicited"), null=True, blank=True)
    dual_recording_id = IdField(_("dual recording"), blank=True, default="")
    risk_disclosure_id = IdField(_("risk disclosure"), blank=True, default="")
    mismatch_confirm_id = IdField(_("mismatch confirmation"), blank=True, default="")

    class Meta:
        app_label = "memory"
        db_table = "core_trade"
        verbose_name = _("core trade")
        verbose_name_plural = _("core trades")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "trade_id", "version"], name="core_trade_row"),
        ]
        indexes = [
            # all trades of a customer in order: the scanner and the alert page
            models.Index(fields=["tenant", "customer_id", "traded_at"], name="core_trade_customer"),
            # whose facts change with this product
            models.Index(fields=["tenant", "product_id", "customer_id"], name="core_trade_product"),
            # which trades were corrected: the scanner, with each chunk. First versions, which nearly all are, stand in
            # it in the order of their arrival, so an import pays little for it.
            models.Index(fields=["tenant", "version"], name="core_trade_version"),
        ]

    def __str__(self) -> str:
        return f"{self.trade_id}@{self.version}"


FACT_MODELS: tuple[type[CoreFact], ...] = (
    CoreCustomer, CoreProduct, CoreAssessment, CoreAssignment, CorePosition, CoreTrade,
)  # fmt: skip


class CoreChange(models.Model):
    """The mark "this customer's facts changed": written in the transaction of the change, deleted after the scan that saw it.

    An outbox and not a watermark, so that a late commit cannot slip under. A customer may have several rows; a
    scanner claims all of them at once (claim, claimed_until) and deletes exactly those that it claimed.
    priority: 0 for a change, 1 for a re-scan that somebody asked for, so that a full scan delays no fresh trade.
    """

    tenant = IdField(default="default")
    customer_id = IdField()
    priority = models.PositiveSmallIntegerField(default=0)
    claim = IdField(null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    at = models.DateTimeField(default=now)

    class Meta:
        app_label = "memory"
        db_table = "core_change"
        verbose_name = _("changed customer")
        verbose_name_plural = _("changed customers")
        indexes = [
            # the scanner: what waits, changes first, oldest first
            models.Index(fields=["priority", "id"], name="core_change_next"),
            # claim and release all rows of a customer
            models.Index(fields=["tenant", "customer_id"], name="core_change_customer"),
        ]

    def __str__(self) -> str:
        return self.customer_id


class CoreImport(models.Model):
    """When a tenant's core tables were last written. The row is the importers' lock: one at a time a tenant.

    Otherwise a product's new rating could miss the customer whose first trade in it is just being imported.
    """

    tenant = IdField(primary_key=True)
    imported_at = models.DateTimeField(default=now)

    class Meta:
        app_label = "memory"
        db_table = "core_import"

    def __str__(self) -> str:
        return self.tenant


class CoreDigest(models.Model):
    """What a customer's rows in an external core came to when somebody last looked (`memory/core/watch.py`).

    digest: a hash for each kind of rows, as `digests.customers` makes it; '': never looked at. marked: how many marks for
    the scanner were written since the last look that found nothing new; 0: none, what was judged is what is there.
    """

    tenant = IdField()
    customer_id = IdField()
    digest = models.CharField(max_length=120, blank=True, default="")
    marked = models.PositiveIntegerField(default=0)

    class Meta:
        app_label = "memory"
        db_table = "core_digest"
        verbose_name = _("digest of a core customer")
        verbose_name_plural = _("digests of core customers")
        constraints = [models.UniqueConstraint(fields=["tenant", "customer_id"], name="core_digest_row")]

    def __str__(self) -> str:
        return self.customer_id


class CoreRound(models.Model):
    """How far the round over an external core has come: one row, number 1. holder: who goes on with it, until held_until.

    step: a table whose customers are looked for, then the digests, then none (DONE). tenant, after: the table's rows up to
    there are done; after_id: the digests up to there. size: customers of a page. stuck: how often in a row a page of one
    customer was too much. complete_from: the begin of the last round that was finished. away_since: no answer since.
    """

    DONE = 99

    began_at = models.DateTimeField(default=now)
    complete_from = models.DateTimeField(null=True, blank=True)
    step = models.PositiveSmallIntegerField(default=0)
    tenant = IdField(blank=True, default="")
    after = WholeTextField(blank=True, default="")
    after_id = models.BigIntegerField(default=0)
    size = models.PositiveIntegerField(default=20)
    stuck = models.PositiveSmallIntegerField(default=0)
    away_since = models.DateTimeField(null=True, blank=True)
    first_at = models.DateTimeField(default=now)
    holder = IdField(blank=True, default="")
    held_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "memory"
        db_table = "core_round"

    def __str__(self) -> str:
        return f"step {self.step}"
