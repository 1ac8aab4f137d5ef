"""Sentences and figures of RISK-007: the elderly, first complex products, classes raised or shopped for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from risk.alerts.models import RiskAlertHit
from risk.console.amounts import cny, percent

Figures = Mapping[str, Any]


def elderly(figures: Figures, hit: RiskAlertHit) -> str:
    values = {
        "product": hit.product_id,
        "risk": figures["product_risk_level"],
        "age": figures["age"],
        "limit": figures["elderly_age"],
        "level": figures["high_risk_level"],
        "papers": _papers(figures),
    }
    if figures.get("is_complex"):
        return (
            _(
                "Sold %(product)s, a complex product of risk level %(risk)s, to a customer of %(age)s years; from "
                "%(limit)s on, products of %(level)s and above and complex ones ask for special care. %(papers)s"
            )
            % values
        )
    return (
        _(
            "Sold %(product)s of risk level %(risk)s to a customer of %(age)s years; from %(limit)s on, products of "
            "%(level)s and above and complex ones ask for special care. %(papers)s"
        )
        % values
    )


def first_complex(figures: Figures, hit: RiskAlertHit) -> str:
    values = {"product": hit.product_id, "amount": cny(figures["amount"]), "papers": _papers(figures)}
    if figures.get("share") is None:
        return (
            _("The customer's first complex product: %(product)s for %(amount)s; its share of the assets is not known. "
              "%(papers)s") % values
        )  # fmt: skip
    return _(
        "The customer's first complex product: %(product)s for %(amount)s, %(share)s of the assets of %(assets)s; from "
        "%(limit)s on it weighs more. %(papers)s"
    ) % {
        **values,
        "share": percent(figures["share"]),
        "assets": cny(figures["assets"]),
        "limit": percent(figures["share_limit"]),
    }


def upgraded(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Bought %(product)s of risk level %(risk)s on %(day)s; the customer's class had been raised from %(old)s to "
        "%(new)s on %(raised)s, at most %(days)s days before."
    ) % {
        "product": hit.product_id,
        "risk": figures["product_risk_level"],
        "day": figures["traded_on"],
        "old": figures["raised_from"],
        "new": figures["raised_to"],
        "raised": figures["raised_on"],
        "days": figures["upgraded_days"],
    }


def shopping(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Bought %(product)s on %(day)s, at most %(days)s days after the assessment of %(assessed)s, which was number "
        "%(in_day)s of its day (at most %(max_in_day)s) and number %(in_months)s within %(months)s months (at most "
        "%(max_in_months)s)."
    ) % {
        "product": hit.product_id,
        "day": figures["traded_on"],
        "days": figures["shopping_days"],
        "assessed": figures["assessed_on"],
        "in_day": figures["assessments_in_day"],
        "max_in_day": figures["max_in_day"],
        "in_months": figures["assessments_in_months"],
        "months": figures["months"],
        "max_in_months": figures["max_in_months"],
    }


def figures_of(figures: Figures) -> list[tuple[Any, Any]]:
    """What a reader checks; what was not compared is left out."""

    def over(value: str, limit: str) -> str | None:
        return f"{figures[value]} / {figures[limit]}" if value in figures and limit in figures else None

    share = figures.get("share")
    asked_for = "age" in figures or "share_limit" in figures
    raised = f"{figures['raised_from']} → {figures['raised_to']}" if "raised_from" in figures else None
    return [
        (_("product risk level"), figures.get("product_risk_level")),
        (_("complex product"), _complex(figures["is_complex"]) if "is_complex" in figures else None),
        (_("age / limit"), over("age", "elderly_age")),
        (_("bought"), cny(figures["amount"]) if "amount" in figures else None),
        (_("share of the assets / limit"), f"{percent(share)} / {percent(figures['share_limit'])}" if share else None),
        (_("assets after"), cny(figures["assets"]) if figures.get("assets") else None),
        (_("dual recording"), _there(figures, "dual_recording") if asked_for else None),
        (_("risk disclosure"), _there(figures, "risk_disclosure") if asked_for else None),
        (_("class raised"), raised),
        (_("raised on"), figures.get("raised_on")),
        (_("assessments that day / limit"), over("assessments_in_day", "max_in_day")),
        (_("assessments in %(months)s months / limit") % {"months": figures.get("months", "")},
         over("assessments_in_months", "max_in_months")),
    ]  # fmt: skip


def _complex(value: Any) -> str:
    return _("not recorded") if value is None else (_("yes") if value else _("no"))


def _there(figures: Figures, name: str) -> str | None:
    value = figures.get(name)
    return None if value is None else (_("there") if value else _("missing"))


def _papers(figures: Figures) -> str:
    recorded, disclosed = figures["dual_recording"], figures["risk_disclosure"]
    if recorded and disclosed:
        return _("Dual recording and risk disclosure are there.")
    if recorded:
        return _("The risk disclosure is missing.")
    if disclosed:
        return _("The dual recording is missing.")
    return _("Dual recording and risk disclosure are missing.")
