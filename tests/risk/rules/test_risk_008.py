"""RISK-008: each pattern on both sides of each of its edges, and against a second reading of the specification."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from risk.calendar.selectors import WorkCalendar
from risk.rules.risk_008 import Conduct, Params, Refusal, Request, RequestedTrade, evaluate
from tests.risk.rules.oracle_008 import expected

SHANGHAI = ZoneInfo("Asia/Shanghai")
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
MICRO = timedelta(microseconds=1)
# 2026-06-15 is a Monday.
NOON = datetime(2026, 6, 15, 12, 0, tzinfo=SHANGHAI).astimezone(UTC)

_ids = iter(range(1, 10**9))


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=SHANGHAI).astimezone(UTC)


def refusal(at: datetime, target: str = "c1", code: str = "NOT_ASSIGNED", **fields: Any) -> Refusal:
    return Refusal(at=at, id=next(_ids), code=code, target=target, **fields)


def trade(at: datetime, customer: str = "c1", product: str = "p1", **fields: Any) -> RequestedTrade:
    values: dict[str, Any] = {"trade_type": "buy", "status": "executed", "risk_level": 3, "version": 1, **fields}
    return RequestedTrade(customer_id=customer, product_id=product, traded_at=at, **values)


def request(at: datetime, trade_id: str = "", made: RequestedTrade | None = None, **fields: Any) -> Request:
    number = next(_ids)
    return Request(at=at, id=number, trade_id=trade_id or f"t{number}", trade=made, **fields)


def found(
    refusals: Iterable[Refusal] = (), requests: Iterable[Request] = (), **more: Any
) -> list[tuple[str, str, str]]:
    """(day, pattern, trade id) of each finding."""
    hits = evaluate(Conduct("a1", list(refusals), list(requests), **more), Params(), 1)
    for hit in hits:
        assert (hit.score, hit.subtypes, hit.customer_id, hit.advisor_id) == (75, ("agent_behavior",), "", "a1")
    return [(*hit.evidence_key.split(":")[1:], hit.trade_id) for hit in hits]  # type: ignore[misc]


PROBING = [("2026-06-15", "probing", "")]


def probes(*minutes: float, targets: int = 3, start: datetime = NOON) -> list[Refusal]:
    return [
        refusal(start + offset * MINUTE, f"c{index % targets}", code="AUTH_403_SCOPE")
        for index, offset in enumerate(minutes)
    ]


def test_probing_needs_five_refusals_on_three_targets() -> None:
    assert found(probes(0, 2, 4, 6)) == []
    assert found(probes(0, 2, 4, 6, 8)) == PROBING
    assert found(probes(0, 2, 4, 6, 8, targets=2)) == []
    assert found(probes(0, 2, 4, 6, 8, 10, 12, 14, targets=2)) == []


def test_probing_within_sixty_minutes_both_ends_included_wherever_the_hours_begin() -> None:
    for start in (NOON, NOON + 37 * MINUTE, NOON + 59 * MINUTE):
        rows = probes(0, 2, 4, 6, 60, start=start)
        assert found(rows) == PROBING
        assert found([*rows[:-1], replace(rows[-1], at=rows[-1].at + MICRO)]) == []


def test_probing_across_midnight_is_of_the_day_that_completes_it() -> None:
    rows = probes(0, 5, 10, 15, 40, start=local("2026-06-15T23:30"))
    assert found(rows) == [("2026-06-16", "probing", "")]
    assert found(probes(0, 5, 10, 15, 29.99, start=local("2026-06-15T23:30"))) == PROBING
    # stored in UTC, this is one day: the business day decides
    both = probes(0, 5, 10, 15, 20, 40, start=local("2026-06-15T23:30"))
    assert found(both) == [*PROBING, ("2026-06-16", "probing", "")]


def test_the_same_code_and_target_within_a_minute_counts_once() -> None:
    rows = probes(0, 2, 4, 6)
    again = refusal(rows[0].at + 60 * SECOND, rows[0].target, rows[0].code)
    assert found([*rows, again]) == []
    assert found([*rows, replace(again, at=again.at + MICRO)]) == PROBING
    assert found([*rows, replace(again, code="NOT_OWNER")]) == PROBING
    assert found([*rows, replace(again, target="c9")]) == PROBING
    # a hammering counts once a minute, and does not stay uncounted for as long as it lasts
    hammer = [refusal(NOON + index * 20 * SECOND, "c1") for index in range(10)]
    assert found([*hammer, refusal(NOON, "c2"), refusal(NOON, "c3")]) == PROBING


def test_a_refused_trade_request_is_no_refusal_of_access() -> None:
    requests = [request(NOON + index * MINUTE, refused=True) for index in range(8)]
    assert found(probes(0, 2, 4, 6), requests) == []


PROBED = [("2026-06-15", "probe_then_trade", "t1")]


def probed(dt: timedelta, **fields: Any) -> list[tuple[str, str, str]]:
    made = trade(NOON + dt, **fields)
    return found([refusal(NOON, customer_id="c1")], [request(NOON + 10 * SECOND, "t1", made)])


def test_a_trade_after_a_refusal_within_a_day() -> None:
    assert probed(timedelta(0)) == []
    assert probed(MICRO) == PROBED
    assert probed(24 * HOUR) == PROBED
    assert probed(24 * HOUR + MICRO) == []
    assert probed(-HOUR) == []
    assert probed(HOUR, trade_type="sell") == PROBED


def test_the_trade_of_another_customer_or_a_cancelled_one_is_none() -> None:
    assert probed(HOUR, customer="c2") == []
    for status in ("cancelled", "reversed"):
        assert probed(HOUR, status=status) == []


def test_only_refusals_that_speak_of_the_customer_count() -> None:
    asked = [request(NOON + HOUR, "t1", trade(NOON + HOUR))]
    for code, expected_ in (("NOT_OWNER", PROBED), ("NOT_ASSIGNED", PROBED), ("AUTH_403_SCOPE", [])):
        assert found([refusal(NOON, code=code, customer_id="c1")], asked) == expected_
    assert found([refusal(NOON, code="NOT_OWNER")], asked) == []  # a session's: of nobody known


def test_an_assignment_begun_between_makes_it_right() -> None:
    for begun, hit in (
        (NOON - MICRO, True), (NOON, False), (NOON + HOUR, False), (NOON + 2 * HOUR, False),
        (NOON + 2 * HOUR + MICRO, True),
    ):  # fmt: skip
        assert bool(probed(2 * HOUR, assigned_from=(begun,))) is hit, begun
    # refused again after the assignment had ended
    made = trade(NOON + 3 * HOUR, assigned_from=(NOON + HOUR,))
    again = [refusal(NOON, customer_id="c1"), refusal(NOON + 2 * HOUR, customer_id="c1")]
    assert found(again, [request(NOON, "t1", made)]) == PROBED


def test_the_day_is_that_of_the_audit_row_and_not_of_the_trade() -> None:
    made = trade(local("2026-06-16T00:10"))
    late = request(local("2026-06-16T00:20"), "t1", made)
    assert found([refusal(NOON, customer_id="c1")], [late]) == [("2026-06-16", "probe_then_trade", "t1")]
    early = request(local("2026-06-15T23:59"), "t1", made)
    assert found([refusal(NOON, customer_id="c1")], [early]) == PROBED


def test_a_refused_request_or_one_without_a_trade_completes_nothing() -> None:
    made = trade(NOON + HOUR)
    for asked in (request(NOON, "t1", made, refused=True), request(NOON, "t1")):
        assert found([refusal(NOON, customer_id="c1")], [asked]) == []


def test_three_refusals_that_name_the_product_then_a_trade_in_it() -> None:
    made = trade(NOON + 24 * HOUR)
    asked = [request(NOON + 24 * HOUR, "t1", made)]
    hit = [("2026-06-16", "probe_then_trade", "t1")]
    rows = [
        refusal(NOON, "p1", "AUTH_403_SCOPE"),
        refusal(NOON + HOUR, "s1", "NOT_OWNER", names=("p1",)),
        refusal(NOON + 2 * HOUR, "p1", "AUTH_403_SCOPE"),
    ]
    assert found(rows, asked) == hit
    assert found(rows[1:], asked) == []
    assert found([replace(rows[0], at=NOON - MICRO), *rows[1:]], asked) == []
    assert found([*rows[:2], replace(rows[2], at=made.traded_at)], asked) == []
    assert found([*rows[:2], replace(rows[2], target="p2")], asked) == []
    # the same code and target within a minute is one of them
    assert found([rows[0], rows[1], replace(rows[0], at=NOON + 60 * SECOND, id=rows[2].id)], asked) == []


BURST = "off_hours_burst"


def burst(start: datetime, count: int = 10, step: timedelta = 3 * MINUTE, **more: Any) -> list[str]:
    rows = [refusal(start + index * step, f"c{index % 2}") for index in range(count)]
    return [day for day, pattern, _trade in found(rows, **more) if pattern == BURST]


def test_ten_events_in_half_an_hour_outside_working_time() -> None:
    night = local("2026-06-15T21:00")
    assert burst(night) == ["2026-06-15"]
    assert burst(night, count=9) == []
    assert burst(night, step=200 * SECOND) == ["2026-06-15"]  # 30 minutes from the first to the tenth
    assert burst(night, step=200 * SECOND + MICRO) == []
    assert burst(NOON) == []


def test_working_time_begins_at_eight_and_is_over_at_twenty() -> None:
    assert burst(local("2026-06-15T20:00")) == ["2026-06-15"]
    assert burst(local("2026-06-15T20:00") - MICRO) == []  # the first is still in time
    assert burst(local("2026-06-15T07:33")) == []  # the tenth is at eight
    assert burst(local("2026-06-15T07:33") - MICRO) == ["2026-06-15"]
    assert burst(local("2026-06-15T19:45")) == []  # only those from 20:00 on count


def test_weekends_holidays_and_weekend_days_that_are_worked() -> None:
    assert burst(local("2026-06-20T12:00")) == ["2026-06-20"]  # Saturday
    assert burst(local("2026-06-19T23:45")) == ["2026-06-20"]
    assert burst(local("2026-06-21T23:45")) == ["2026-06-22"]  # Sunday night into Monday
    calendar = WorkCalendar({date(2026, 6, 20): True, date(2026, 6, 15): False})
    assert burst(local("2026-06-20T12:00"), calendar=calendar) == []
    assert burst(local("2026-06-20T22:00"), calendar=calendar) == ["2026-06-20"]
    assert burst(NOON, calendar=calendar) == ["2026-06-15"]


def test_requests_are_events_too_refused_ones_as_well_and_repeats_are_not() -> None:
    night = local("2026-06-15T21:00")
    rows = [refusal(night + index * MINUTE, f"c{index % 2}") for index in range(6)]
    asked = [request(night + index * MINUTE, f"t{index}", refused=index % 2 == 0) for index in range(4)]
    assert found(rows, asked) == [("2026-06-15", BURST, "")]
    assert found(rows, [*asked[:3], request(asked[0].at + MINUTE, "t0", refused=True)]) == []


PUSH = "product_push"


def pushes(count: int = 8, start: datetime = NOON, step: timedelta = HOUR, **fields: Any) -> list[Request]:
    return [
        request(start + index * step, f"t{index + 1}", trade(start + index * step, f"c{index + 1}", **fields))
        for index in range(count)
    ]


def pushed(requests: Iterable[Request], **more: Any) -> list[tuple[str, str]]:
    return [(day, trade_id) for day, pattern, trade_id in found((), requests, **more) if pattern == PUSH]


def test_one_product_for_eight_customers() -> None:
    assert pushed(pushes(7)) == []
    assert pushed(pushes(8)) == [("2026-06-15", "t8")]
    assert pushed([*pushes(7), request(NOON + 9 * HOUR, "t8", trade(NOON, "c1"))]) == []
    assert pushed(pushes(8, risk_level=2)) == []
    assert pushed(pushes(8, risk_level=None)) == []
    assert pushed(pushes(8, trade_type="switch_in")) == [("2026-06-15", "t8")]
    assert pushed(pushes(8, trade_type="sell")) == []


def test_within_five_days_both_ends_included() -> None:
    rows = [*pushes(7), request(NOON + 120 * HOUR, "t8", trade(NOON, "c8"))]
    assert pushed(rows) == [("2026-06-20", "t8")]
    assert pushed([*rows[:-1], replace(rows[-1], at=rows[-1].at + MICRO)]) == []


def test_half_of_the_advisors_own_requests() -> None:
    others = [request(NOON - index * MINUTE, f"o{index}", trade(NOON, "d1", "p2")) for index in range(9)]
    assert pushed([*others[:8], *pushes()]) == [("2026-06-15", "t8")]
    assert pushed([*others, *pushes()]) == []
    # who is not in the window is no request of it, a repeated report is no further one, a refused one none
    assert pushed([replace(others[8], at=NOON - 200 * HOUR), *others[:8], *pushes()]) == [("2026-06-15", "t8")]
    assert pushed([replace(others[8], trade_id="o0"), *others[:8], *pushes()]) == [("2026-06-15", "t8")]
    assert pushed([replace(others[8], refused=True), *others[:8], *pushes()]) == [("2026-06-15", "t8")]
    assert pushed([replace(others[8], refused=True, trade=None), *others[:8], *pushes()]) == [("2026-06-15", "t8")]
    # one that the core does not have was made all the same; one that was cancelled is skipped
    assert pushed([replace(others[8], trade=None), *others[:8], *pushes()]) == []
    gone = replace(others[8], trade=trade(NOON, "d1", "p2", status="cancelled"))
    assert pushed([gone, *others[:8], *pushes()]) == [("2026-06-15", "t8")]


def test_campaigns_are_let_pass_first_and_last_day_included() -> None:
    day = date(2026, 6, 15)
    assert pushed(pushes(), campaigns={"p1": [(day, day)]}) == []
    assert pushed(pushes(), campaigns={"p2": [(day, day)]}) == [("2026-06-15", "t8")]
    assert pushed(pushes(), campaigns={"p1": [(date(2026, 6, 16), date(2026, 6, 30))]}) == [("2026-06-15", "t8")]
    # after its last day the advisor's own pushing begins to count, from nothing
    ended = {"p1": [(date(2026, 6, 1), day)]}
    across = pushes(12, start=local("2026-06-15T18:00"))
    assert pushed(across, campaigns=ended) == []
    assert pushed(pushes(14, start=local("2026-06-15T18:00")), campaigns=ended) == [("2026-06-16", "t14")]


def test_a_cancelled_purchase_is_none() -> None:
    rows = pushes(9)
    rows[3] = replace(rows[3], trade=trade(NOON, "c4", status="cancelled"))
    assert pushed(rows) == [("2026-06-15", "t9")]
    assert pushed(rows[:8]) == []


def test_of_a_day_and_pattern_the_first_holds_the_key_and_more_change_nothing() -> None:
    rows = probes(0, 2, 4, 6, 8)
    one = evaluate(Conduct("a1", rows, []), Params(), 1)
    more = evaluate(Conduct("a1", [*rows, *probes(50, 52, 54)], []), Params(), 1)
    assert one == more
    assert one[0].evidence_key == "a1:2026-06-15:probing"


def test_the_order_of_the_rows_does_not_matter() -> None:
    conduct = world(random.Random(7))
    shuffled = replace(conduct, refusals=list(reversed(conduct.refusals)), requests=list(reversed(conduct.requests)))
    assert evaluate(conduct, Params(), 1) == evaluate(shuffled, Params(), 1)


# --- against the second reading -------------------------------------------------------------------------------------

# Instants at which something begins or ends, and how far from them events lie: most sit on an edge or beside it.
ANCHORS = [
    local(text)
    for text in (
        "2026-06-15T08:00", "2026-06-15T20:00", "2026-06-15T23:30", "2026-06-16T00:00", "2026-06-19T20:00",
        "2026-06-20T00:00", "2026-06-21T23:45", "2026-06-22T00:00", "2026-06-22T08:00", "2026-06-30T23:50",
        "2026-07-01T00:00", "2026-06-16T08:30",
    )
]  # fmt: skip
STEPS = [timedelta(0), MICRO, 59 * SECOND, 60 * SECOND, 60 * SECOND + MICRO, 3 * MINUTE, 200 * SECOND, 30 * MINUTE,
         60 * MINUTE, 60 * MINUTE + MICRO, 24 * HOUR, 120 * HOUR]  # fmt: skip


def world(rnd: random.Random) -> Conduct:
    anchors = rnd.sample(ANCHORS, rnd.choice((1, 2, 3)))

    def instant() -> datetime:
        steps = rnd.choice((1, 2, 4))
        return rnd.choice(anchors) + sum((rnd.choice((-1, 1)) * rnd.choice(STEPS) for _ in range(steps)), timedelta(0))

    def near(moment: datetime) -> datetime:
        return moment + rnd.choice((-1, 1)) * rnd.choice(STEPS)

    customers = [f"c{index}" for index in range(rnd.choice((2, 9, 9, 12)))]
    products = ["p1", "p2"][: rnd.choice((1, 2))]
    codes = ["NOT_OWNER", "NOT_ASSIGNED", "AUTH_403_SCOPE"]
    refusals = []
    start = rnd.choice(anchors) - rnd.choice(STEPS)
    for index in range(rnd.randrange(0, 26)):
        customer = rnd.choice(customers)
        run = start + index * rnd.choice((MINUTE, 3 * MINUTE, 200 * SECOND, 30 * SECOND))
        refusals.append(
            refusal(
                instant() if rnd.random() < 0.4 else run,
                rnd.choice((customer, rnd.choice(products), "s1")),
                rnd.choice(codes),
                customer_id=rnd.choice((customer, "")),
                names=rnd.choice(((), (rnd.choice(products),))),
            )
        )
    requests = []
    for index in range(rnd.randrange(0, 26)):
        at = start + index * HOUR if rnd.random() < 0.6 else instant()
        about = rnd.choice(refusals).at if refusals and rnd.random() < 0.5 else at
        traded_at = near(about)
        begun = tuple(sorted(near(about) for _ in range(rnd.choice((0, 0, 1, 2)))))
        made = trade(
            traded_at,
            customers[index % len(customers)],
            rnd.choice([*["p1"] * 8, *products, ""]),
            trade_type=rnd.choice(("buy",) * 6 + ("switch_in", "sell")),
            status=rnd.choice(("executed",) * 12 + ("cancelled", "reversed")),
            risk_level=rnd.choice((3,) * 8 + (4, 2, None)),
            assigned_from=begun,
        )
        requests.append(
            request(
                at,
                f"t{rnd.randrange(30)}" if rnd.random() < 0.1 else f"u{index}",
                made if rnd.random() < 0.9 else None,
                refused=rnd.random() < 0.1,
            )
        )
    exceptions = {anchor.astimezone(SHANGHAI).date(): rnd.random() < 0.5 for anchor in anchors if rnd.random() < 0.3}
    first = rnd.choice(anchors).astimezone(SHANGHAI).date()
    campaigns = {"p1": [(first, first + timedelta(days=rnd.choice((0, 1, 5))))]} if rnd.random() < 0.2 else {}
    return Conduct("a1", refusals, requests, WorkCalendar(exceptions), campaigns)


@pytest.mark.parametrize("seed", range(40))
def test_the_rule_and_a_second_reading_of_the_words_agree(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(50):
        conduct = world(rnd)
        hits = evaluate(conduct, Params(), 1)
        assert {(hit.evidence_key, hit.trade_id) for hit in hits} == expected(conduct), conduct


def test_the_random_worlds_hold_every_pattern() -> None:
    seen: dict[str, int] = {}
    rnd = random.Random(1)
    for _ in range(600):
        for hit in evaluate(world(rnd), Params(), 1):
            seen[hit.figures["pattern"]] = seen.get(hit.figures["pattern"], 0) + 1
    assert all(seen.get(name, 0) >= 20 for name in ("probing", "probe_then_trade", BURST, PUSH)), seen


def test_a_long_history_is_judged_in_linear_time() -> None:
    import time

    def took(count: int) -> float:
        start = NOON - timedelta(days=300)
        refusals = [refusal(start + index * 2 * MINUTE, f"c{index % 5}", customer_id="c1") for index in range(count)]
        requests = [
            request(start + index * 2 * MINUTE, f"t{index}", trade(start + index * 2 * MINUTE, f"c{index % 20}"))
            for index in range(count)
        ]
        conduct = Conduct("a1", refusals, requests)
        began = time.process_time()
        assert evaluate(conduct, Params(), 1)
        return time.process_time() - began

    small, large = took(4_000), took(40_000)
    assert large < 25 * small + 0.5
