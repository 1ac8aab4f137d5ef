"""Sentences and figures of RISK-005 and RISK-006: what was turned over and paid, what does not fit a customer."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from memory.core.models import TradeType
from risk.alerts.models import RiskAlertHit
from risk.console.amounts import cny, percent

Figures = Mapping[str, Any]
SECURITIES_LAW = gettext_lazy("Securities Law (2019)")


def times(ratio: Any) -> str:
    """`6.250000` becomes `6.25`; two decimals at most, and `6.00` of just over 6 is no more than people need."""
    return f"{Decimal(str(ratio)):.2f}".rstrip("0").rstrip(".")


# --- RISK-005 -----------------------------------------------------------------------------------------------------


def turnover(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "%(buys)d purchases of %(bought)s in %(days)d days, against %(equity)s held on average at month-ends, turn the "
        "account over %(turnover)s times a year; the limit is %(limit)s times."
    ) % {
        **_churning(figures),
        "bought": cny(figures["bought"]),
        "turnover": times(figures["turnover"]),
        "limit": times(figures["turnover_limit"]),
    }


def cost(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Fees of %(fees)s in %(days)d days, against %(equity)s held on average at month-ends, cost %(cost)s a year; "
        "the limit is %(limit)s."
    ) % {
        **_churning(figures),
        "fees": cny(figures["fees"]),
        "cost": percent(figures["cost"]),
        "limit": percent(figures["cost_limit"]),
    }


def _churning(figures: Figures) -> dict[str, Any]:
    days = min(figures["account_days"], figures["window_days"])
    return {"buys": figures["buys"], "days": days, "equity": cny(figures["equity"])}


def churning_figures(figures: Figures) -> list[tuple[Any, Any]]:
    known = figures.get("solicited_known")
    solicited = None
    if known is not None:
        values = {"count": figures.get("solicited"), "known": known}
        solicited = _("%(count)d of %(known)d recorded") % values if known else _("not recorded")
    scaled = figures.get("annualised")
    return [
        (_("turnover a year / limit"), _pair(figures, "turnover", "turnover_limit", times)),
        (_("cost a year / limit"), _pair(figures, "cost", "cost_limit", percent)),
        (_("purchases"), figures.get("buys")),
        (_("bought"), cny(figures["bought"]) if "bought" in figures else None),
        (_("fees"), cny(figures["fees"]) if "fees" in figures else None),
        (_("mean equity"), cny(figures["equity"]) if "equity" in figures else None),
        (_("month-ends counted"), figures.get("months")),
        (_("age of the account, days"), figures.get("account_days") if scaled else None),
        (_("scaled to a year by"), times(figures["annual_factor"]) if scaled else None),
        (_("solicited purchases"), solicited),
        (_("taken off, mostly own initiative"), figures.get("discount") or None),
    ]


def _pair(figures: Figures, value: str, limit: str, shown: Any) -> str | None:
    return f"{shown(figures[value])} / {shown(figures[limit])}" if value in figures and limit in figures else None


# --- RISK-006 -----------------------------------------------------------------------------------------------------


def dormant(figures: Figures, hit: RiskAlertHit) -> str:
    part = figures["dormant_reactivated"]
    return _(
        "Traded %(amount)s after %(days)d days without a trade, the last on %(last)s; an account counts as dormant "
        "from %(limit)d days on."
    ) % {
        "amount": cny(figures["amount"]),
        "days": part["idle_days"],
        "last": part["last_traded_on"],
        "limit": part["limit_days"],
    }


def fast(figures: Figures, hit: RiskAlertHit) -> str:
    part = figures["fast_in_out"]
    return _(
        "Sold %(amount)s of %(product)s, and with it %(share)s of what was bought on %(day)s (trade %(lot)s); within "
        "%(days)d days %(limit)s is the limit."
    ) % {
        "amount": cny(figures["amount"]),
        "product": hit.product_id,
        "share": percent(part["share"]),
        "day": part["lot_bought_on"],
        "lot": part["lot_trade_id"],
        "days": part["limit_days"],
        "limit": percent(part["limit"]),
    }


def size(figures: Figures, hit: RiskAlertHit) -> str:
    part = figures["size_outlier"]
    values = {
        "amount": cny(figures["amount"]),
        "median": cny(part["median"]),
        "count": part["trades"],
        "days": part["window_days"],
        "limit": times(part["limit"]),
    }
    if part["direction"] == "in":
        return (
            _(
                "%(amount)s came in, where the median of this customer's %(count)d trades in of the last %(days)d days "
                "is %(median)s; the limit is %(limit)s times that."
            )
            % values
        )
    return (
        _(
            "%(amount)s went out, where the median of this customer's %(count)d trades out of the last %(days)d days "
            "is %(median)s; the limit is %(limit)s times that."
        )
        % values
    )


def odd_hour(figures: Figures, hit: RiskAlertHit) -> str:
    part = figures["odd_hour"]
    return _(
        "Traded at %(time)s; of this customer's %(count)d earlier trades %(odd)d were made before %(until)02d:00, and "
        "up to %(limit)s is unusual."
    ) % {
        "time": part["local_time"],
        "count": part["earlier"],
        "odd": part["earlier_then"],
        "until": part["until_hour"],
        "limit": percent(part["limit"]),
    }


def unusual_figures(figures: Figures) -> list[tuple[Any, Any]]:
    kind = figures.get("trade_type", "")
    idle, lot, usual, hours = (
        figures.get(name) or {} for name in ("dormant_reactivated", "fast_in_out", "size_outlier", "odd_hour")
    )
    return [
        (_("type of trade"), TradeType(kind).label if kind in TradeType.values else kind),
        (_("amount"), cny(figures["amount"]) if "amount" in figures else None),
        (_("last trade before"), idle.get("last_traded_on")),
        (_("days without a trade / limit"), f"{idle['idle_days']} / {idle['limit_days']}" if idle else None),
        (_("bought in trade"), lot.get("lot_trade_id")),
        (_("bought on"), lot.get("lot_bought_on")),
        (_("units sold of those bought"), f"{lot['units_taken']} / {lot['lot_units']}" if lot else None),
        (_("share sold / limit"), _pair(lot, "share", "limit", percent)),
        (_("median of usual trades"), cny(usual["median"]) if usual else None),
        (_("times the median / limit"), _pair(usual, "times", "limit", times) if usual.get("times") else None),
        (_("local time"), hours.get("local_time")),
        (_("earlier trades at such hours"), f"{hours['earlier_then']} / {hours['earlier']}" if hours else None),
    ]
