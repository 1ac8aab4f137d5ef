"""Everything that the page of one customer shows, read in a fixed number of queries, masked as far as it has to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from config.base.clock import business_date, now
from config.base.errors import DomainError
from guard.access.masking import mask
from memory.core import selectors as core
from memory.core.facts import AssessmentFact, CustomerFact
from memory.profiles import derived, history
from memory.profiles.core_sync import was_asked
from memory.profiles.documents import l1_document, l1_view, l2_document, l3_risk_view
from memory.profiles.drafts.models import AdvisorDraft
from memory.profiles.drafts.selectors import drafts_of_customer
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, ProfileVersion
from memory.profiles.schemas import L1Core, L1Own, L2Own, L3Internal, L3Shared
from memory.profiles.snapshots.selectors import CustomerSnapshot, snapshot_of_customer
from memory.sessions.models import AgentSession
from risk.alerts.models import AlertType, RiskAlert
from risk.alerts.scoring import band
from risk.console.customers.picture import Slice, class_word, slices_of
from risk.console.customers.shown import Line, lines_of
from risk.console.sight import Sight, alerts_of
from risk.console.subjects import masked_name
from risk.console.words import subtype_words

# What anybody reads of each; the lists behind them have all.
MOST_ADVISORS = 20
MOST_ALERTS = 15
MOST_DRAFTS = 10
MOST_SESSIONS = 10
MOST_VERSIONS = 20
MOST_ASSESSMENTS = 6

STATUS_WORDS = {
    "valid": _("valid"),
    "expiring": _("expires within 30 days"),
    "expired": _("expired"),
    "missing": _("missing"),
    "unknown": _("not known while the core is away"),
}


@dataclass(frozen=True)
class Layer:
    """advisor_id: of l2, whose view it is."""

    version: int
    updated_at: datetime
    lines: Sequence[Line]
    advisor_id: str = ""


@dataclass(frozen=True)
class ProductRow:
    product_id: str
    asset_class: Any
    risk_level: str
    amount: str
    percent: Any


@dataclass(frozen=True)
class Holdings:
    """The advisor snapshot as people see it."""

    advisor_id: str
    taken_at: datetime
    document: dict[str, Any]
    slices: Sequence[Slice]
    products: Sequence[ProductRow]


@dataclass(frozen=True)
class AlertRow:
    alert: RiskAlert
    words: str
    band: str


@dataclass(frozen=True)
class SessionRow:
    """actor: masked where it is the customer."""

    session: AgentSession
    actor: str


@dataclass(frozen=True)
class VersionRow:
    version: ProfileVersion
    author: str


@dataclass(frozen=True)
class CustomerPage:
    """clear: everything is shown as it is. core_away: what comes from the core system is not known now."""

    customer_id: str
    clear: bool
    core_away: bool
    fact: CustomerFact | None
    name: str
    age: int | None
    elderly: bool | None
    status: str
    status_words: Any
    assessments: Sequence[tuple[AssessmentFact, bool]]  # the second: in force now
    advisors: Sequence[str]
    own: Layer | None
    from_core: Layer | None
    views: Sequence[Layer]
    risk: Layer | None
    internal: Sequence[Line]
    score: int | None
    band: str
    holdings: Holdings | None
    alerts: Sequence[AlertRow]
    drafts: Sequence[AdvisorDraft]
    sessions: Sequence[SessionRow]
    versions: Sequence[VersionRow]

    @property
    def shown_id(self) -> str:
        return self.customer_id if self.clear else mask(self.customer_id)


def customer_page(*, tenant: str, customer_id: str, sight: Sight, clear: bool = False) -> CustomerPage:
    """The page of a customer for somebody who may see cases. 14 queries, however much there is of the customer; a core
    that does not answer leaves its part out. Up to date: past every cache."""
    moment = now()
    core_away, fact, assessments, advisors = _from_core(tenant, customer_id)
    l1 = CustomerProfileL1.objects.filter(tenant=tenant, customer_id=customer_id).first()
    l3 = CustomerProfileL3.objects.filter(tenant=tenant, customer_id=customer_id).first()
    l2s = CustomerProfileL2.objects.filter(tenant=tenant, customer_id=customer_id).order_by("-updated_at")
    known = l1_view(l1_document(l1), moment) if l1 else {}
    risk = l3_risk_view(l3) if l3 else {}
    status, name, age = _who(known, fact, assessments, core_away and not (l1 and was_asked(l1)), moment)
    score = risk.get("risk_score")
    whose = {customer_id, name, known.get("name") or ""}

    def lines(document: dict[str, Any], fields: Iterable[str]) -> list[Line]:
        return lines_of(document, fields, clear=clear, known=whose)

    return CustomerPage(
        customer_id=customer_id,
        clear=clear,
        core_away=core_away,
        fact=fact,
        name=name if clear else masked_name(name),
        age=age,
        elderly=None if age is None else age >= derived.ELDERLY_AGE,
        status=status,
        status_words=STATUS_WORDS[status],
        assessments=_dated(assessments, moment),
        advisors=advisors,
        own=Layer(l1.version, l1.updated_at, lines(known, L1Own.model_fields)) if l1 else None,
        from_core=Layer(l1.version, l1.updated_at, lines(known, L1Core.model_fields)) if l1 else None,
        views=[
            Layer(
                version=row.version,
                updated_at=row.updated_at,
                lines=lines(l2_document(row), L2Own.model_fields),
                advisor_id=row.advisor_id,
            )
            for row in l2s[:MOST_ADVISORS]
        ],
        risk=Layer(l3.version, l3.updated_at, lines(risk, L3Shared.model_fields)) if l3 else None,
        internal=lines(risk, L3Internal.model_fields),
        score=score,
        band=band(score) if score is not None else "",
        holdings=_holdings(snapshot_of_customer(tenant=tenant, customer_id=customer_id, at=moment)),
        alerts=_alerts(tenant, customer_id, sight),
        drafts=drafts_of_customer(tenant=tenant, customer_id=customer_id, limit=MOST_DRAFTS),
        sessions=_sessions(tenant, customer_id, clear),
        versions=[
            VersionRow(row, author_of(row, clear=clear))
            for row in history.history_of_customer(tenant=tenant, customer_id=customer_id, limit=MOST_VERSIONS)
        ],
    )  # fmt: skip


def author_of(version: ProfileVersion, *, clear: bool) -> str:
    """Who wrote a version: the customer is masked, others are named."""
    if version.author == version.customer_id and not clear:
        return mask(version.author)
    return version.author


def _from_core(
    tenant: str, customer_id: str
) -> tuple[bool, CustomerFact | None, Sequence[AssessmentFact], Sequence[str]]:
    """Whether the core is away, and what it knows."""
    try:
        return (
            False,
            core.customer(tenant=tenant, customer_id=customer_id),
            core.assessments(tenant=tenant, customer_id=customer_id),
            core.advisors_of(tenant=tenant, customer_id=customer_id),
        )
    except DomainError as error:
        if error.status != 503:
            raise
        return True, None, [], []


def _dated(assessments: Sequence[AssessmentFact], moment: datetime) -> list[tuple[AssessmentFact, bool]]:
    """Newest first, with the one in force marked: one that the core dates later than now is not in force yet."""
    in_force = next((row for row in assessments if row.assessed_at <= moment), None)
    return [(row, row is in_force) for row in assessments[:MOST_ASSESSMENTS]]


def _who(
    known: dict[str, Any],
    fact: CustomerFact | None,
    assessments: Sequence[AssessmentFact],
    nothing_known: bool,
    moment: datetime,
) -> tuple[str, str, int | None]:
    """State of the assessment, name and age: from the core while it answers, else from what the profile keeps of it.
    nothing_known: the core does not answer, and never did about this customer: then no assessment is missing."""
    today = business_date(moment)
    born = fact.birth_date if fact else None
    if born is None and known.get("birth_date"):
        born = date.fromisoformat(known["birth_date"])
    status: str
    if nothing_known:
        status = "unknown"
    elif not (fact or assessments):
        status = derived.assessment_status(known, today)
    else:
        newest = next((row for row in assessments if row.assessed_at <= moment), None)
        status = derived.assessment_status(
            {"c_level": newest.c_level, "valid_until": derived.valid_until(newest.assessed_at).isoformat()}
            if newest
            else {},
            today,
        )
    name = (fact.name if fact else "") or known.get("name") or ""
    return status, name, derived.age_on(born, today) if born else None


def _holdings(copy: CustomerSnapshot | None) -> Holdings | None:
    if copy is None:
        return None
    document = copy.document
    return Holdings(
        advisor_id=copy.advisor_id,
        taken_at=copy.snapshot_at,
        document=document,
        slices=slices_of(document["by_class"]),
        products=[
            ProductRow(
                row["product_id"], class_word(row["asset_class"]), row["risk_level"] or "", row["amount"],
                float(row["share"]) * 100 if row["share"] else None,
            )
            for row in document["by_product"]["top"]
        ],
    )  # fmt: skip


def _alerts(tenant: str, customer_id: str, sight: Sight) -> list[AlertRow]:
    cases = alerts_of(tenant=tenant, sight=sight).exclude(alert_type=AlertType.DATA_QUALITY)
    rows = cases.filter(customer_id=customer_id).select_related("assignee").order_by("-opened_at")[:MOST_ALERTS]
    return [AlertRow(row, subtype_words(row.subtypes), band(row.score)) for row in rows]


def _sessions(tenant: str, customer_id: str, clear: bool) -> list[SessionRow]:
    rows = AgentSession.objects.filter(tenant=tenant, customer_id=customer_id).order_by("-pk")[:MOST_SESSIONS]
    return [
        SessionRow(row, mask(row.actor_id) if row.actor_id == customer_id and not clear else row.actor_id)
        for row in rows
    ]
