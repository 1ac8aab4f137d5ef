"""A rule run never overwrites what an officer decided, whatever it finds: new hits, other figures, hits gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from config.base.clock import now
from config.base.redis import state
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.services import add_note, claim, escalate, give_back, reopen, snooze
from risk.rules.hit import Hit
from tests.risk.alerts.people import REASON, make_hit, make_person, settle, the_alert
from tests.risk.alerts.test_four_eyes import seen
from tests.risk.alerts.test_officers import at_once, judge

pytestmark = pytest.mark.django_db(transaction=True)

# Whatever an officer has said or holds.
WORD = (
    "status", "assignee", "disposition_code", "disposition_text", "disposed_by", "disposed_at", "confirmed_at",
    "quiet_until", "proposed_status", "proposed_code", "proposed_text", "proposed_quiet_days", "proposed_hash",
    "proposed_by", "proposed_at", "four_eyes", "snoozed_until", "reopened_at",
)  # fmt: skip
ABOUT: dict[str, Any] = {"to_status": "closed", "code": "K05", "text": REASON}

WORDS: dict[str, Callable[[RiskAlert, User], Any]] = {
    "claimed": lambda alert, who: claim(alert_id=alert.pk, officer=who),
    "snoozed": lambda alert, who: snooze(
        alert_id=alert.pk, officer=who, version=alert.version, until=now() + timedelta(hours=1), text=REASON
    ),
    "proposed": lambda alert, who: escalate(officer=who, **ABOUT, **seen(alert)),
    "returned": lambda alert, who: _returned(alert, who),
    "confirmed": lambda alert, who: judge(alert, who, "confirmed", "C01"),
    "false positive, quiet": lambda alert, who: judge(alert, who, "false_positive", "F04", quiet_days=30),
    "closed": judge,
    "reopened": lambda alert, who: _reopened(alert, who),
}


def _returned(alert: RiskAlert, who: User) -> None:
    alert = escalate(officer=who, **ABOUT, **seen(alert))
    give_back(alert_id=alert.pk, officer=make_person("bob"), version=alert.version, text=REASON)


def _reopened(alert: RiskAlert, who: User) -> None:
    alert = judge(alert, who)
    reopen(alert_id=alert.pk, officer=who, version=alert.version, text=REASON)


def first(**fields: Any) -> Hit:
    return make_hit("T1", score=50, **fields)


# Below level 2 and within 10 of the score: what rises further calls people or opens a follow-up; others test that.
RUNS: tuple[Sequence[Hit], ...] = (
    [first()],
    [first(), make_hit("T2", score=52)],
    [first(figures={"c_level": "C1"}), make_hit("T2", score=52)],
    [make_hit("T2", score=52)],
    [],
    [first(version=2)],
)


@pytest.mark.parametrize("name", WORDS)
def test_the_officers_word_stands(name: str, own_redis_prefix: str) -> None:
    alice = make_person("alice")
    settle(first())
    alert = the_alert()
    add_note(alert_id=alert.pk, officer=alice, text="asked the branch")
    alert.refresh_from_db()
    WORDS[name](alert, alice)
    said = RiskAlert.objects.filter(pk=alert.pk).values(*WORD).get()
    acts = list(AlertAction.objects.filter(alert=alert).exclude(actor=None).order_by("id").values())
    assert [act["text"] for act in acts if act["action"] == "note"] == ["asked the branch"]
    for run in (*RUNS, *reversed(RUNS)):
        for key in state().scan_iter(f"{own_redis_prefix}:risk:dedup:*"):
            state().delete(key)
        results = at_once(*[lambda run=run: settle(*run)] * 2)
        assert not [result for result in results if isinstance(result, Exception)], results
        assert RiskAlert.objects.filter(pk=alert.pk).values(*WORD).get() == said, run
        assert list(AlertAction.objects.filter(alert=alert).exclude(actor=None).order_by("id").values()) == acts
