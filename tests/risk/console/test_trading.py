"""What an officer reads of RISK-005 and RISK-006: figures, limits and basis, from the rules' own figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from django.utils import translation

from risk.alerts.models import HitState, RiskAlertHit
from risk.console.sentences import findings_of, sentence
from risk.rules.hit import Hit
from tests.risk.rules.build import at, make_customer
from tests.risk.rules.test_risk_005 import SIX, T, buys, churning, costing
from tests.risk.rules.test_risk_006 import DAY, lot, sale, trade, unusual, usual


def kept(hit: Hit) -> RiskAlertHit:
    return RiskAlertHit(
        rule_id=hit.rule_id, rule_version=1, trade_id=hit.trade_id, product_id=hit.product_id, score=hit.score,
        subtypes=list(hit.subtypes), figures=dict(hit.figures), state=HitState.LIVE, pk=1,
    )  # fmt: skip


def test_churning_is_told_with_both_measures_their_limits_and_the_law() -> None:
    [hit] = churning(costing(30_000, trades=SIX))
    turned, paid = findings_of([kept(hit)])
    assert turned.text == (
        "6 purchases of ¥600,000.00 in 365 days, against ¥100,000.00 held on average at month-ends, turn the account "
        "over 6 times a year; the limit is 6 times."
    )
    assert paid.text == (
        "Fees of ¥30,000.00 in 365 days, against ¥100,000.00 held on average at month-ends, cost 30 % a year; the "
        "limit is 20 %."
    )
    assert turned.basis == "Securities Law (2019)"
    figures = dict(turned.figures)
    assert figures["turnover a year / limit"] == "6 / 6"
    assert figures["cost a year / limit"] == "30 % / 20 %"
    assert figures["month-ends counted"] == "12"
    assert figures["solicited purchases"] == "not recorded"
    assert "scaled to a year by" not in figures


def test_a_young_account_says_how_it_was_scaled_and_own_initiative_what_it_took_off() -> None:
    trades = [replace(row, solicited=number < 2) for number, row in enumerate(buys(*[50_000] * 6))]
    [hit] = churning(trades, customers=[make_customer(opened_at=T - timedelta(days=182, hours=12))])
    assert "in 182 days" in sentence(kept(hit))
    figures = dict(findings_of([kept(hit)])[0].figures)
    assert figures["scaled to a year by"] == "2"
    assert figures["solicited purchases"] == "2 of 6 recorded"
    assert figures["taken off, mostly own initiative"] == "20"


def test_a_dormant_account() -> None:
    [hit] = unusual([trade("a", timedelta(days=200)), trade("b", amount=50_000)])
    [finding] = findings_of([kept(hit)])
    assert finding.text == (
        "Traded ¥50,000.00 after 200 days without a trade, the last on 2025-11-27; an account counts as dormant from "
        "180 days on."
    )
    assert finding.basis.endswith("(PBOC Order 2016 No. 3), art. 11, 12")


def test_fast_in_and_out() -> None:
    [hit] = unusual([lot("b", DAY, 100), sale("87.5")])
    [finding] = findings_of([kept(hit)])
    assert finding.text == (
        "Sold ¥100,000.00 of p, and with it 87.5 % of what was bought on 2026-06-14 (trade b); within 7 days 80 % is "
        "the limit."
    )
    assert dict(finding.figures)["units sold of those bought"] == "87.50 / 100.00"


def test_size_and_hour_the_weightier_first() -> None:
    odd = replace(trade("x", amount=100_000), traded_at=at("2026-06-15", "01:02:03"))
    [hit] = unusual([*usual(*[Decimal("19999.99")] * 20), odd])
    large, late = findings_of([kept(hit)])
    assert sentence(kept(hit)) == large.text
    assert large.text == (
        "¥100,000.00 came in, where the median of this customer's 20 trades in of the last 365 days is ¥19,999.99; "
        "the limit is 5 times that."
    )
    assert late.text == (
        "Traded at 01:02:03; of this customer's 20 earlier trades 0 were made before 05:00, and up to 5 % is unusual."
    )
    out = replace(odd, trade_type="sell")
    [hit] = unusual([*usual(*[20_000] * 20, trade_type="sell"), out])
    assert sentence(kept(hit)).startswith("¥100,000.00 went out, where the median of this customer's 20 trades out")


def test_figures_of_an_older_version_make_the_plain_sentence() -> None:
    hits = [*churning(SIX), *unusual([lot("b", DAY, 100), sale(100)])]
    for hit in hits:
        bare = kept(hit)
        bare.figures = {}
        assert f"score {hit.score}" in sentence(bare)
        assert findings_of([bare])


def test_the_words_are_translatable() -> None:
    [hit] = churning(SIX)
    with translation.override("zh-hans"):
        assert "600,000.00" in sentence(kept(hit))
