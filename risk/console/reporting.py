"""Sentences and figures of RISK-003 and RISK-004: what moved, against which limit, in words a person can check."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import business_zone
from risk.alerts.models import RiskAlertHit
from risk.console.amounts import cny, percent, usd

Figures = Mapping[str, Any]
LARGE_AMOUNT_MEASURES = gettext_lazy(
    "Measures on Financial Institutions' Reporting of Large-Value and Suspicious Transactions (PBOC Order 2016 No. 3)"
)
FLOWS = {
    ("cash", "in"): gettext_lazy("cash in"),
    ("cash", "out"): gettext_lazy("cash out"),
    ("cross_border", "in"): gettext_lazy("cross-border transfers in"),
    ("cross_border", "out"): gettext_lazy("cross-border transfers out"),
    ("domestic", "in"): gettext_lazy("domestic transfers in"),
    ("domestic", "out"): gettext_lazy("domestic transfers out"),
}
KINDS = {"natural": gettext_lazy("natural person"), "entity": gettext_lazy("entity")}
SHOWN_TRADES = 5


def large_amount(figures: Figures, hit: RiskAlertHit) -> str:
    values = {"day": figures["day"], "flow": _flow(figures), "sum": _sum(figures), "limit": _limit(figures)}
    if figures["basis"] == "converted":
        return (
            _(
                "On %(day)s %(flow)s in CNY and in foreign currency came to %(sum)s together; the reporting limit is "
                "%(limit)s a day."
            )
            % values
        )
    return _("On %(day)s %(flow)s came to %(sum)s; the reporting limit is %(limit)s a day.") % values


def structuring(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "%(count)d trades (%(flow)s) within %(hours)d hours, each from %(near)s of the reporting limit of %(cny)s or "
        "%(usd)s up to just under it."
    ) % {
        "count": figures["count"],
        "flow": _flow(figures),
        "hours": figures["hours"],
        "near": percent(figures["near"]),
        "cny": cny(figures["limit_cny"]),
        "usd": usd(figures["limit_usd"]),
    }


def large_amount_figures(figures: Figures) -> list[tuple[Any, Any]]:
    return [
        (_("what moved"), _flow(figures) if "category" in figures else None),
        (_("kind of customer"), _kind(figures)),
        (_("day"), figures.get("day")),
        (_("sum / limit"), _against_limit(figures)),
        (_("trades so far that day"), figures.get("trades")),
        (_("this trade"), _booked(figures)),
    ]


def structuring_figures(figures: Figures) -> list[tuple[Any, Any]]:
    found = figures.get("trades")
    trades = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return [
        (_("what moved"), _flow(figures) if "category" in figures else None),
        (_("kind of customer"), _kind(figures)),
        (_("limit"), f"{cny(figures['limit_cny'])} / {usd(figures['limit_usd'])}" if "limit_usd" in figures else None),
        (_("first of them"), _moment(figures.get("from"))),
        (_("last of them"), _moment(figures.get("to"))),
        *((entry.get("trade", ""), _booked(entry)) for entry in trades[-SHOWN_TRADES:]),
    ]


def _flow(figures: Figures) -> str:
    """`cash in`; codes that nobody knows as they are."""
    code = (figures["category"], figures.get("direction", ""))
    return str(FLOWS.get(code, " ".join(map(str, code))))


def _kind(figures: Figures) -> Any:
    return KINDS.get(figures.get("kind", ""), figures.get("kind"))


def _sum(figures: Figures) -> str:
    if figures["basis"] == "converted":
        return _("%(first)s or %(second)s") % {"first": cny(figures["sum_cny"]), "second": usd(figures["sum_usd"])}
    return usd(figures["sum_usd"]) if figures["basis"] == "foreign" else cny(figures["sum_cny"])


def _limit(figures: Figures) -> str:
    if figures["basis"] == "converted":
        return _("%(first)s or %(second)s") % {"first": cny(figures["limit_cny"]), "second": usd(figures["limit_usd"])}
    return usd(figures["limit_usd"]) if figures["basis"] == "foreign" else cny(figures["limit_cny"])


def _against_limit(figures: Figures) -> str | None:
    try:
        return f"{_sum(figures)} / {_limit(figures)}"
    except KeyError:
        return None


def _booked(figures: Figures) -> str | None:
    if "amount" not in figures:
        return None
    amount = cny(figures["amount"]).removeprefix("¥")
    return f"{amount} {figures.get('currency', '')}".strip()


def _moment(text: Any) -> str | None:
    """An instant of the figures on the business day's clock, to the second."""
    if not isinstance(text, str):
        return None
    try:
        return f"{datetime.fromisoformat(text).astimezone(business_zone()):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text
