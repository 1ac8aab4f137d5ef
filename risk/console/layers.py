"""What the profiles say of an alert's customer: l1 and l2 as far as they are shown behind masks, and risk's own l3."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory.profiles.documents import l1_document, l1_view, l2_document
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2
from memory.profiles.schemas import L1Own, L2Own
from risk.alerts.models import RiskAlert
from risk.console.customers.shown import Line, lines_of
from risk.console.profile import ProfileLine, profile_lines


@dataclass(frozen=True)
class Layer:
    version: int
    updated_at: datetime
    lines: Sequence[Line]
    advisor_id: str = ""  # of l2, whose view it is


@dataclass(frozen=True)
class Layers:
    """None: there is no such profile."""

    own: Layer | None = None
    view: Layer | None = None
    risk: Sequence[ProfileLine] = ()


def layers_of(alert: RiskAlert, written: Callable[[str], str], known: Collection[str], moment: datetime) -> Layers:
    """What the customer told, what the alert's advisor wrote, what risk holds of them, as they stand now.

    Personal fields stay behind their masks, also where the alert is shown in clear: the customer's page unmasks them.
    Three queries.
    """
    mine = {"tenant": alert.tenant, "customer_id": alert.customer_id}
    own = CustomerProfileL1.objects.filter(**mine).first()
    view = CustomerProfileL2.objects.filter(**mine, advisor_id=alert.advisor_id).first()
    return Layers(
        Layer(own.version, own.updated_at, _lines(l1_view(l1_document(own), moment), L1Own, known)) if own else None,
        Layer(view.version, view.updated_at, _lines(l2_document(view), L2Own, known), view.advisor_id)
        if view
        else None,
        profile_lines(**mine, words=written),
    )


def _lines(document: dict[str, object], schema: type, known: Collection[str]) -> list[Line]:
    return lines_of(document, schema.model_fields, clear=False, known=known)  # type: ignore[attr-defined]
