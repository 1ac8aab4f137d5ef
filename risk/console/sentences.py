"""Why a rule fired, in a sentence that a person can check: the figure, the limit, the rule's version, the legal basis.

Built from `hit.figures` alone, which hold what the rule compared when it judged; a figure that is not there is left
out, never guessed. One function a subtype; a subtype without one gets the plain sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from memory.core.models import AssetClass, TradeType
from risk.alerts.models import HitState, RiskAlertHit
from risk.console import conduct, reporting, special_care, trading
from risk.console.amounts import cny, number, percent
from risk.console.words import LACKS, LIMITS_LACK, RULES, SUBTYPES
from risk.rules.hit import DATA_QUALITY
from risk.rules.risk_008 import PRODUCT_PUSH

MAX_FINDINGS = 12

# Short names of the sources (RISK.md).
SUITABILITY_MEASURES = gettext_lazy("Measures on the Suitability of Securities and Futures Investors")
PRODUCT_MEASURES = gettext_lazy("Measures on the Suitability of Financial Institutions' Products (2025 No. 7)")
# Articles that were read in a published text; where none was at hand the act alone is named, for a wrong number in a
# case file is worse than none.
BASIS: dict[str, tuple[Any, str]] = {
    "suitability_mismatch": (SUITABILITY_MEASURES, ""),
    "suitability_lowest": (SUITABILITY_MEASURES, "22"),
    "suitability_confirmed": (SUITABILITY_MEASURES, ""),
    "assessment_missing": (PRODUCT_MEASURES, ""),
    "assessment_expired": (PRODUCT_MEASURES, ""),
    "concentration": (PRODUCT_MEASURES, ""),
    "large_amount": (reporting.LARGE_AMOUNT_MEASURES, "5, 6"),
    "structuring": (reporting.LARGE_AMOUNT_MEASURES, "11, 12"),
    "churning_turnover": (trading.SECURITIES_LAW, ""),
    "churning_cost": (trading.SECURITIES_LAW, ""),
    "dormant_reactivated": (reporting.LARGE_AMOUNT_MEASURES, "11, 12"),
    "fast_in_out": (reporting.LARGE_AMOUNT_MEASURES, "11, 12"),
    "size_outlier": (reporting.LARGE_AMOUNT_MEASURES, "11, 12"),
    "odd_hour": (reporting.LARGE_AMOUNT_MEASURES, "11, 12"),
    "elderly_high_risk": (PRODUCT_MEASURES, ""),
    "first_complex": (SUITABILITY_MEASURES, "25"),
    "assessment_upgraded": (PRODUCT_MEASURES, ""),
    "assessment_shopping": (PRODUCT_MEASURES, ""),
    "agent_behavior": (conduct.PERSONAL_DATA_LAW, "51"),
}
# What an advisor does with a product is no matter of access.
_BASIS_OF_PATTERN = {PRODUCT_PUSH: (SUITABILITY_MEASURES, "")}
DIMENSIONS = {
    "product": gettext_lazy("this product"),
    "issuer": gettext_lazy("this issuer"),
    "class": gettext_lazy("this asset class"),
}

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Meter:
    """A share and its limit in percent, 0 to 100, for the bar."""

    value: str
    limit: str
    label: str


@dataclass(frozen=True)
class Finding:
    """One subtype of one hit, as the page tells it."""

    text: str
    figures: Sequence[tuple[str, str]]
    rule_id: str
    rule_name: Any
    rule_version: int
    trade_id: str
    basis: str
    meter: Meter | None = None
    state: Any = ""  # words when the hit does not stand any more
    hit_id: int = 0
    trade_ids: Sequence[str] = ()  # that it speaks of, the one that completed it first


def sentence(hit: RiskAlertHit) -> str:
    """The sentence of a hit's weightiest subtype, for the queue."""
    return _sentence(_weightiest(hit), hit)


def findings_of(hits: Sequence[RiskAlertHit]) -> list[Finding]:
    """What stands first and scores highest first; at most MAX_FINDINGS."""
    ranked = sorted(hits, key=lambda hit: (hit.state != HitState.LIVE, -hit.score, -hit.pk))
    found = [_finding(subtype, hit) for hit in ranked[:MAX_FINDINGS] for subtype in hit.subtypes]
    return found[:MAX_FINDINGS]


def _over(share: Any, limit: Any) -> str:
    """The share, or `just over 40 %` where rounding would show the limit itself."""
    shown = percent(share)
    return _("just over %(limit)s") % {"limit": shown} if shown == percent(limit) else shown


def _weightiest(hit: RiskAlertHit) -> str:
    parts = hit.figures.get("parts") if isinstance(hit.figures, dict) else None
    if isinstance(parts, dict) and parts:
        return max(hit.subtypes or [""], key=lambda subtype: parts.get(subtype, 0))
    return hit.subtypes[0] if hit.subtypes else ""


def _sentence(subtype: str, hit: RiskAlertHit) -> str:
    figures = hit.figures if isinstance(hit.figures, dict) else {}
    writer = _SENTENCES.get(subtype)
    if hit.rule_id == DATA_QUALITY:
        if figures.get("limits_only"):
            lacks = _(", ").join(str(LIMITS_LACK.get(code, code)) for code in hit.subtypes)
            return _("Without %(lacks)s the trade cannot be held against limits in dollars.") % {"lacks": lacks}
        lacks = _(", ").join(str(LACKS.get(code, code)) for code in hit.subtypes)
        return _("The trade cannot be judged without %(lacks)s.") % {"lacks": lacks}
    if writer is not None:
        try:
            return writer(figures, hit)
        except KeyError:
            pass  # an older version's figures lack what the sentence needs
    return _("%(rule)s found %(what)s, score %(score)d.") % {
        "rule": RULES.get(hit.rule_id, hit.rule_id),
        "what": SUBTYPES.get(subtype, subtype),
        "score": hit.score,
    }


def _finding(subtype: str, hit: RiskAlertHit) -> Finding:
    figures = hit.figures if isinstance(hit.figures, dict) else {}
    source = _BASIS_OF_PATTERN.get(str(figures.get("pattern"))) or BASIS.get(subtype)
    basis = ""
    if source is not None:
        name, articles = source
        basis = _("%(source)s, art. %(articles)s") % {"source": name, "articles": articles} if articles else str(name)
    listed = _FIGURES.get(hit.rule_id, _no_figures)(figures)
    return Finding(
        text=_sentence(subtype, hit),
        figures=[(str(label), str(value)) for label, value in listed if value not in (None, "")],
        rule_id=hit.rule_id,
        rule_name=RULES.get(hit.rule_id, ""),
        rule_version=hit.rule_version,
        trade_id=hit.trade_id,
        basis=basis,
        meter=_meter(figures) if subtype == "concentration" else None,
        state="" if hit.state == HitState.LIVE else hit.get_state_display(),
        hit_id=hit.pk or 0,
        trade_ids=trades_of(subtype, hit),
    )


def trades_of(subtype: str, hit: RiskAlertHit) -> list[str]:
    """The trade that completed the finding, and those that its figures name beside it."""
    figures = hit.figures if isinstance(hit.figures, dict) else {}
    found = [hit.trade_id] if hit.trade_id else []
    parts = figures.get("trades")
    if subtype == "structuring" and isinstance(parts, list):  # each `trade_id@version`
        named = [str(part.get("trade", "")).rpartition("@")[0] for part in parts if isinstance(part, dict)]
        found += [trade_id for trade_id in named if trade_id]
    lot = figures.get("fast_in_out")
    if subtype == "fast_in_out" and isinstance(lot, dict) and lot.get("lot_trade_id"):
        found.append(str(lot["lot_trade_id"]))
    return list(dict.fromkeys(found))


# --- RISK-001 -----------------------------------------------------------------------------------------------------


def _mismatch(figures: Figures, hit: RiskAlertHit) -> str:
    values = {"product": hit.product_id, "risk": figures["product_risk_level"], "tolerance": figures["tolerance_level"]}
    if figures.get("solicited"):
        return (
            _(
                "Sold %(product)s of risk level %(risk)s to an ordinary investor assessed %(tolerance)s, at the "
                "advisor's solicitation."
            )
            % values
        )
    return (
        _(
            "Sold %(product)s of risk level %(risk)s to an ordinary investor assessed %(tolerance)s, without all the "
            "papers of a purchase at the customer's own initiative."
        )
        % values
    )


def _lowest(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Sold %(product)s of risk level %(risk)s to an investor of the lowest risk tolerance (%(tolerance)s), to whom "
        "nothing above that level may be sold, confirmed or not."
    ) % {"product": hit.product_id, "risk": figures["product_risk_level"], "tolerance": figures["tolerance_level"]}


def _confirmed(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "The customer, assessed %(tolerance)s, bought %(product)s of risk level %(risk)s at own initiative, warned and "
        "confirmed in writing."
    ) % {"product": hit.product_id, "risk": figures["product_risk_level"], "tolerance": figures["tolerance_level"]}


def _missing(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Sold %(product)s of risk level %(risk)s to an ordinary investor who had no risk assessment by %(day)s."
    ) % {
        "product": hit.product_id,
        "risk": figures["product_risk_level"],
        "day": figures["traded_on"],
    }


def _expired(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "Bought %(product)s on %(day)s; the risk assessment of %(assessed)s was valid only through %(through)s."
    ) % {
        "product": hit.product_id,
        "day": figures["traded_on"],
        "assessed": figures["assessed_on"],
        "through": figures["valid_through"],
    }


def _suitability_figures(figures: Figures) -> list[tuple[Any, Any]]:
    # No paper is due where the product is within the tolerance, nor a recording outside a branch.
    mismatched = _level(figures.get("product_risk_level")) > _level(figures.get("tolerance_level")) > 0
    branch = figures.get("channel") == "branch"

    def there(name: str, *, due: bool) -> Any:
        value = figures.get(name)
        if value:
            return _("there")
        return _("missing") if value is not None and due else None

    solicited = figures.get("solicited")
    return [
        (_("product risk level"), figures.get("product_risk_level")),
        (_("risk tolerance"), figures.get("tolerance_level")),
        (_("assessed on"), figures.get("assessed_on")),
        (_("valid through"), figures.get("valid_through")),
        (_("solicited"), _("not recorded") if solicited is None else (_("yes") if solicited else _("no"))),
        (_("risk disclosure"), there("risk_disclosure", due=mismatched)),
        (_("mismatch confirmation"), there("mismatch_confirm", due=mismatched)),
        (_("dual recording"), there("dual_recording", due=mismatched and branch)),
    ]


def _level(name: Any) -> int:
    """`R4` and `C4` are 4; what is no level is 0."""
    return int(name[1:]) if isinstance(name, str) and name[1:].isascii() and name[1:].isdigit() else 0


# --- RISK-002 -----------------------------------------------------------------------------------------------------


def _concentration(figures: Figures, hit: RiskAlertHit) -> str:
    return _(
        "After buying %(amount)s of %(product)s, %(share)s of the customer's assets of %(assets)s are in "
        "%(dimension)s; the limit is %(limit)s."
    ) % {
        "amount": cny(figures["amount"]),
        "product": hit.product_id,
        "share": _over(figures["share"], figures["limit"]),
        "assets": cny(figures["assets"]),
        "dimension": DIMENSIONS.get(figures["dimension"], figures["dimension"]),
        "limit": percent(figures["limit"]),
    }


def _concentration_figures(figures: Figures) -> list[tuple[Any, Any]]:
    over = figures.get("over")
    rows: list[tuple[Any, Any]] = []
    if isinstance(over, dict):
        for name, entry in over.items():
            label = _("%(dimension)s / limit") % {"dimension": DIMENSIONS.get(name, name)}
            rows.append((label, f"{percent(entry.get('share'))} / {percent(entry.get('limit'))}"))
    kind = figures.get("asset_class", "")
    return [
        *rows,
        (_("bought"), cny(figures["amount"]) if "amount" in figures else None),
        (_("assets after"), cny(figures["assets"]) if "assets" in figures else None),
        (_("cash before"), cny(figures["cash"]) if "cash" in figures else None),
        (_("product risk level"), figures.get("product_risk_level")),
        (_("asset class"), AssetClass(kind).label if kind in AssetClass.values else kind),
        (_("issuer"), figures.get("issuer_id")),
    ]


def _meter(figures: Figures) -> Meter | None:
    share, limit = number(figures.get("share")), number(figures.get("limit"))
    if share is None or limit is None:
        return None
    label = _("%(share)s, the limit is %(limit)s") % {"share": percent(share), "limit": percent(limit)}
    bounded = min(max(share * 100, Decimal(0)), Decimal(100))
    return Meter(f"{bounded:.1f}", f"{limit * 100:.1f}", label)


def _quality_figures(figures: Figures) -> list[tuple[Any, Any]]:
    kind = figures.get("trade_type", "")
    return [(_("type of trade"), TradeType(kind).label if kind in TradeType.values else kind)]


def _no_figures(figures: Figures) -> list[tuple[Any, Any]]:
    return [(name, value) for name, value in figures.items() if isinstance(value, (str, int))][:8]


_SENTENCES: dict[str, Callable[[Figures, RiskAlertHit], str]] = {
    "suitability_mismatch": _mismatch,
    "suitability_lowest": _lowest,
    "suitability_confirmed": _confirmed,
    "assessment_missing": _missing,
    "assessment_expired": _expired,
    "concentration": _concentration,
    "large_amount": reporting.large_amount,
    "structuring": reporting.structuring,
    "churning_turnover": trading.turnover,
    "churning_cost": trading.cost,
    "dormant_reactivated": trading.dormant,
    "fast_in_out": trading.fast,
    "size_outlier": trading.size,
    "odd_hour": trading.odd_hour,
    "elderly_high_risk": special_care.elderly,
    "first_complex": special_care.first_complex,
    "assessment_upgraded": special_care.upgraded,
    "assessment_shopping": special_care.shopping,
    "agent_behavior": conduct.sentence,
}
_FIGURES: dict[str, Callable[[Figures], list[tuple[Any, Any]]]] = {
    "RISK-001": _suitability_figures,
    "RISK-002": _concentration_figures,
    "RISK-003": reporting.large_amount_figures,
    "RISK-004": reporting.structuring_figures,
    "RISK-005": trading.churning_figures,
    "RISK-006": trading.unusual_figures,
    "RISK-007": special_care.figures_of,
    "RISK-008": conduct.figures_of,
    DATA_QUALITY: _quality_figures,
}
