"""What an alert does to the customer's l3, and what it must not."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from memory.profiles import selectors
from memory.profiles.models import CustomerProfileL3
from memory.profiles.services import write_l3
from risk.alerts.models import RiskAlert
from risk.alerts.profile import write_after_alert
from tests.memory.profiles.helpers import make_agent, make_assignment, make_caller
from tests.risk.alerts.people import DAY, make_hit, make_person, settle, the_alert
from tests.risk.alerts.test_officers import at_once, judge

pytestmark = pytest.mark.django_db(transaction=True)
CUSTOMER = "C0000017"
LEVEL = {"code": "max_risk_level", "value": "R3", "visibility": "public", "text": "please call us"}


def written(alert: RiskAlert, **more: Any) -> int:
    return write_after_alert(caller=make_caller("risk"), alert_id=alert.alert_id, **more).written.version


def shown(agent: str = "risk") -> dict[str, Any]:
    return selectors.read_l3(caller=make_caller(agent), customer_id=CUSTOMER)


def test_an_open_alert_moves_the_score_only() -> None:
    settle(make_hit(score=60))
    alert = the_alert()
    assert written(alert) == 1
    row = shown()
    assert (row["risk_score"], row["risk_level"], row["open_alerts"]) == (60, "high", [alert.alert_id])
    assert row["reasons"] == ["suitability_mismatch"]
    for more in ({"restrictions": [LEVEL]}, {"flags": [{"code": "watch"}]}):
        with pytest.raises(DomainError, match="moves the score only") as refused:
            written(alert, **more)
        assert refused.value.code == "NEEDS_CONFIRMED_ALERT"
    assert CustomerProfileL3.objects.get().version == 1


def test_repeating_it_writes_nothing() -> None:
    settle(make_hit(score=60))
    judge(the_alert(), make_person("alice"), "confirmed", "C01")
    arguments: dict[str, Any] = {"restrictions": [LEVEL], "flags": [{"code": "watch", "visibility": "risk"}]}
    first = written(the_alert(), **arguments)
    assert written(the_alert(), **arguments) == first
    assert written(the_alert()) == first, "what is not named stays"
    assert shown()["open_alerts"] == []


def test_a_confirmed_alert_restricts_and_the_cache_is_told() -> None:
    settle(make_hit(score=60))
    alert = the_alert()
    written(alert)
    write_l3(caller=make_caller("risk"), customer_id=CUSTOMER, payload={"risk_score": 1, "reviewed_by": "alice"})
    assert shown()["risk_score"] == 1
    judge(alert, make_person("alice"), "confirmed", "C01")
    written(alert, restrictions=[LEVEL])
    row = shown()
    assert (row["risk_score"], row["reviewed_by"], row["restrictions"][0]["code"]) == (60, "alice", "max_risk_level")
    written(alert, restrictions=[{**LEVEL, "value": "R2"}])
    assert [entry["value"] for entry in shown()["restrictions"]] == ["R2"]


def test_what_may_not_be_told_moves_no_score_that_others_see() -> None:
    settle(
        make_hit("T1", score=45),
        make_hit("T2", rule="RISK-004", score=85, subtypes=("structuring",)),
        make_hit("T3", rule="RISK-003", score=35, subtypes=("large_amount",), at=DAY),
    )
    written(the_alert(alert_type="event"))
    row = CustomerProfileL3.objects.get()
    assert row.payload["risk_score"] == 45
    assert "structuring" in row.internal["reasons"]
    assert len(row.internal["open_alerts"]) == 2
    assert "structuring" not in str(row.payload)


@pytest.mark.parametrize("rule", ["RISK-003", "RISK-004"])
def test_what_may_not_be_told_is_written_and_nobody_else_can_tell(rule: str) -> None:
    """Byte for byte the same for customer and advisor: no profile before, or one with a score that is out of date."""
    make_assignment(customer_id=CUSTOMER)
    agents = [make_agent("customer", CUSTOMER), make_agent("advisor")]
    url = f"/profiles/l3/{CUSTOMER}"

    def seen() -> list[tuple[int, bytes]]:
        found = []
        for agent in agents:
            for path in (url, f"{url}/versions", f"{url}?version=1", f"{url}?as_of={quote(rfc3339(now()))}"):
                answer = agent.get(path)
                body = answer.content if answer.status_code == 200 else answer.json()["code"].encode()
                found.append((answer.status_code, body))
        return found

    before = seen()
    settle(make_hit(rule=rule, score=60, subtypes=("structuring",)))
    hidden = the_alert()
    assert seen() == before
    assert written(hidden) == 1
    assert seen() == before
    assert CustomerProfileL3.objects.get().internal["open_alerts"] == [hidden.alert_id]
    judge(hidden, make_person("alice"), "confirmed", "C01")
    written(hidden, flags=[{"code": "watch"}], restrictions=[{"code": "no_complex"}])
    assert seen() == before
    # A score that the next told alert would bring down stays until then: the hidden one moves nothing.
    write_l3(
        caller=make_caller("risk"), customer_id=CUSTOMER,
        payload={"risk_score": 45, "risk_level": "medium", "flags": [{"code": "watch", "visibility": "advisor"}]},
    )  # fmt: skip
    before = seen()
    written(hidden)
    written(hidden, flags=[{"code": "watch", "since": "2026-01-01"}])
    assert seen() == before


def test_a_false_positive_takes_its_score_back() -> None:
    settle(make_hit(score=60))
    written(the_alert())
    judge(the_alert(), make_person("alice"), "false_positive", "F04")
    written(the_alert())
    assert (shown()["risk_score"], shown()["risk_level"], shown()["reasons"]) == (0, "low", [])


def test_only_risk_writes_and_only_of_its_tenant() -> None:
    settle(make_hit(score=60))
    with pytest.raises(DomainError) as refused:
        write_after_alert(caller=make_caller("advisor"), alert_id=the_alert().alert_id)
    assert refused.value.code == "AUTH_403_SCOPE"
    with pytest.raises(DomainError) as unknown:
        write_after_alert(caller=make_caller("risk"), alert_id="none-such")
    assert unknown.value.code == "ALERT_NOT_FOUND"


def test_two_at_once_end_with_what_both_say() -> None:
    settle(make_hit(score=60))
    judge(the_alert(), make_person("alice"), "confirmed", "C01")
    alert = the_alert()
    results = at_once(
        lambda: written(alert, restrictions=[LEVEL]),
        lambda: written(alert, restrictions=[{"code": "no_complex"}]),
        lambda: written(alert, flags=[{"code": "watch"}]),
    )
    assert not [result for result in results if isinstance(result, Exception)], results
    assert {entry["code"] for entry in shown()["restrictions"]} == {"max_risk_level", "no_complex"}
    assert [entry["code"] for entry in shown()["flags"]] == ["watch"]
