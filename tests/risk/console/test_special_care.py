"""What an officer reads of RISK-007: the figure, the limit and the papers, from the rule's own figures."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from risk.alerts.models import HitState, RiskAlertHit
from risk.console.sentences import Finding, findings_of, sentence
from tests.risk.rules.build import found, make_assessment, make_customer, make_product, make_snapshot, make_trade


def told(**trade: Any) -> RiskAlertHit:
    """Everything at once: 76 years, a first complex R4 product, a class raised and shopped for the day before."""
    hit = found(
        "RISK-007", [make_trade("2026-06-15", amount=20_000, **trade)], positions=make_snapshot(x=80_000),
        products=[make_product(level=4, is_complex=True), make_product("x")],
        customers=[make_customer(birth_date=date(1950, 1, 1))],
        assessments=[make_assessment(2, "2026-01-01"), *(make_assessment(c, "2026-06-14", clock) for c, clock in
                     ((2, "09:00:00"), (3, "10:00:00"), (4, "11:00:00")))],
    )[0]  # fmt: skip
    return RiskAlertHit(
        rule_id=hit.rule_id, rule_version=1, trade_id=hit.trade_id, product_id=hit.product_id, score=hit.score,
        subtypes=list(hit.subtypes), figures=dict(hit.figures), state=HitState.LIVE, pk=1,
    )  # fmt: skip


def findings(**trade: Any) -> list[Finding]:
    return list(findings_of([told(**trade)]))


def test_each_part_is_a_sentence_with_its_figures_limit_and_basis() -> None:
    texts = [finding.text for finding in findings()]
    assert texts == [
        "Sold p, a complex product of risk level R4, to a customer of 76 years; from 65 on, products of R4 and above "
        "and complex ones ask for special care. Dual recording and risk disclosure are missing.",
        "The customer's first complex product: p for ¥20,000.00, 20 % of the assets of ¥100,000.00; from 20 % on it "
        "weighs more. Dual recording and risk disclosure are missing.",
        "Bought p of risk level R4 on 2026-06-15; the customer's class had been raised from C3 to C4 on 2026-06-14, "
        "at most 7 days before.",
        "Bought p on 2026-06-15, at most 7 days after the assessment of 2026-06-14, which was number 3 of its day "
        "(at most 2) and number 4 within 12 months (at most 8).",
    ]
    assert all(finding.basis for finding in findings())
    assert dict(findings()[0].figures) == {
        "product risk level": "R4", "complex product": "yes", "age / limit": "76 / 65", "bought": "¥20,000.00",
        "share of the assets / limit": "20 % / 20 %", "assets after": "¥100,000.00", "dual recording": "missing",
        "risk disclosure": "missing", "class raised": "C3 → C4", "raised on": "2026-06-14",
        "assessments that day / limit": "3 / 2", "assessments in 12 months / limit": "4 / 8",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("papers", "words"),
    [
        ({"dual_recording_id": "d"}, "The risk disclosure is missing."),
        ({"risk_disclosure_id": "r"}, "The dual recording is missing."),
        ({"dual_recording_id": "d", "risk_disclosure_id": "r"}, "Dual recording and risk disclosure are there."),
    ],
)
def test_the_papers_that_are_missing_are_named(papers: dict[str, str], words: str) -> None:
    assert [finding.text.endswith(words) for finding in findings(**papers)] == [True, True, False, False]


def test_the_queue_shows_the_weightiest_part() -> None:
    assert sentence(told()).startswith("Sold p, a complex product")
    assert sentence(told(dual_recording_id="d", risk_disclosure_id="r")).startswith("Bought p on 2026-06-15")


def test_figures_of_another_version_make_the_plain_sentence() -> None:
    hit = told()
    hit.figures = {"parts": hit.figures["parts"]}
    assert sentence(hit) == "Elderly and complex products found elderly customer, high risk, score 95."
    assert findings_of([hit])[0].text == sentence(hit)
