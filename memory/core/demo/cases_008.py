"""Planted cases of RISK-008: what advisors were refused and asked for, at each edge of each pattern.

Each case is an advisor of its own, known to the audit log alone. The trades that they ask for are trades of the story,
which say nothing of when they were asked for: all times but those of probe_then_trade are the case's own.
Expected findings are worked out from the specification, beside each case: 75 points, one a day and pattern.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from memory.core.demo.stage import Deed, Planted
from memory.core.demo.world import ZONE, Cells, World, local

RULE, SUBTYPE, SCORE = "RISK-008", "agent_behavior", 75
MICRO, SECOND, MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOT_ASSIGNED, NOT_OWNER, SCOPE = "NOT_ASSIGNED", "NOT_OWNER", "AUTH_403_SCOPE"
PUSHED = 8  # customers


@dataclass(frozen=True)
class Shelf:
    """Purchases of the story that stand and have one version. pushed, tame: of one product each, one a customer, of R3
    and above and of R2 and below. others: of R2 and below, each product at most four times."""

    pushed: Sequence[Cells]
    tame: Sequence[Cells]
    others: Sequence[Cells]


class Scene:
    """One advisor, and what is written down of them."""

    def __init__(self, world: World, planted: Planted, shelf: Shelf, advisor_id: str, midweek: date) -> None:
        self.world, self.planted, self.shelf = world, planted, shelf
        self.advisor_id = advisor_id
        self.midweek = midweek  # a Wednesday

    def at(self, hour: int, minute: int = 0, second: int = 0, *, days: int = 0) -> datetime:
        return local(self.midweek + timedelta(days=days), hour, minute, second)

    def refused(self, at: datetime, code: str = NOT_ASSIGNED, *, customer: str = "", product: str = "") -> None:
        self.planted.conduct.append(Deed(self.advisor_id, at, code, customer, product))

    def asked(self, at: datetime, trade_id: str, *, refused: bool = False) -> None:
        self.planted.conduct.append(Deed(self.advisor_id, at, "NO_MANDATE" if refused else "", trade_id=trade_id))

    def hit(self, pattern: str, at: datetime, trade_id: str = "") -> None:
        day = at.astimezone(ZONE).date().isoformat()
        self.planted.conduct_violations.append({
            "rule": RULE, "trade_id": trade_id, "evidence_key": f"{self.advisor_id}:{day}:{pattern}",
            "subtypes": [SUBTYPE], "score": SCORE,
        })  # fmt: skip

    def miss(self, why: str) -> None:
        self.planted.conduct_silent.append({"advisor_id": self.advisor_id, "why": why})


Case = Callable[[Scene], None]


def _told(scene: Scene, why: str, pattern: str, at: datetime, trade_id: str = "") -> None:
    if why:
        scene.miss(why)
    else:
        scene.hit(pattern, at, trade_id)


# --- probing: 5 refusals on 3 targets in 60 minutes ------------------------------------------------------------------


def _probing(
    offsets: Sequence[timedelta], why: str = "", *, targets: int = 3, start: tuple[int, int] = (9, 37)
) -> Case:
    """Refusals so long after the first, which comes 37 minutes past the hour."""

    def case(scene: Scene) -> None:
        first = scene.at(*start)
        for number, offset in enumerate(offsets):
            scene.refused(first + offset, SCOPE, customer=f"C{number % targets + 1:06d}")
        _told(scene, why, "probing", first + offsets[-1])

    return case


HOURLY = (timedelta(0), 10 * MINUTE, 20 * MINUTE, 30 * MINUTE)


def _repeated(after: timedelta, why: str = "") -> Case:
    """Four refusals, and the last of them once more."""

    def case(scene: Scene) -> None:
        first = scene.at(10, 58)
        for number, offset in enumerate((*HOURLY, HOURLY[-1] + after)):
            scene.refused(first + offset, SCOPE, customer=f"C{min(number, 3) + 1:06d}")
        _told(scene, why, "probing", first + HOURLY[-1] + after)

    return case


# --- probe_then_trade: refused a customer, and within 24 hours their trade -------------------------------------------


def _probed(before: timedelta, why: str = "", *, code: str = NOT_ASSIGNED, assigned: timedelta | None = None) -> Case:
    """Refused so long before the trade. assigned: so long after the refusal an assignment of this advisor begins."""

    def case(scene: Scene) -> None:
        trade = scene.shelf.others[0]
        traded = datetime.fromisoformat(trade["traded_at"])
        scene.refused(traded - before, code, customer=trade["customer_id"])
        if assigned is not None:
            begun = traded - before + assigned
            scene.world.tables["assignments.csv"].append({
                "advisor_id": scene.advisor_id, "customer_id": trade["customer_id"],
                "valid_from": begun.isoformat(), "valid_to": (begun + 2 * DAY).isoformat(),
            })  # fmt: skip
        scene.asked(traded + MINUTE, trade["trade_id"])
        _told(scene, why, "probe_then_trade", traded + MINUTE, trade["trade_id"])

    return case


def _product_probed(count: int, first: timedelta, why: str = "") -> Case:
    """So many refusals that name the product, the first so long before the trade."""

    def case(scene: Scene) -> None:
        trade = scene.shelf.others[1]
        traded = datetime.fromisoformat(trade["traded_at"])
        for number in range(count):
            scene.refused(traded - first + number * HOUR, SCOPE, product=trade["product_id"])
        scene.asked(traded + MINUTE, trade["trade_id"])
        _told(scene, why, "probe_then_trade", traded + MINUTE, trade["trade_id"])

    return case


# --- off_hours_burst: 10 events in 30 minutes outside 08:00-20:00 or on a day off ------------------------------------


def _burst(start: Callable[[Scene], datetime], width: timedelta, why: str = "", *, count: int = 10) -> Case:
    """Refusals on two targets, spread evenly from the first to the last."""

    def case(scene: Scene) -> None:
        first = start(scene)
        for number in range(count):
            scene.refused(first + width * number / (count - 1), SCOPE, customer=f"C{number % 2 + 1:06d}")
        _told(scene, why, "off_hours_burst", first + width)

    return case


def _mixed(scene: Scene) -> None:
    """Six refusals and four requests, refused ones among them: ten events."""
    first = scene.at(21, 50)
    for number in range(6):
        scene.refused(first + number * 2 * MINUTE, SCOPE, customer=f"C{number % 2 + 1:06d}")
    for number, trade in enumerate(scene.shelf.others[2:6]):
        scene.asked(first + (12 + number * 2) * MINUTE, trade["trade_id"], refused=number % 2 == 0)
    scene.hit("off_hours_burst", first + 18 * MINUTE)


# --- product_push: one product of R3 and above, for 8 customers in 5 days, half of what was asked for -----------------


def _push(
    width: timedelta,
    why: str = "",
    *,
    count: int = PUSHED,
    others: int = 0,
    tame: bool = False,
    last_refused: bool = False,
) -> Case:
    """Requests for as many customers, spread evenly; others: requests for other products, before the last one."""

    def case(scene: Scene) -> None:
        trades = (scene.shelf.tame if tame else scene.shelf.pushed)[:count]
        first = scene.at(10, 13, days=-6)
        for number, trade in enumerate(trades):
            last = number == len(trades) - 1
            scene.asked(first + width * number / (count - 1), trade["trade_id"], refused=last and last_refused)
        for number, trade in enumerate(scene.shelf.others[:others]):
            scene.asked(first + HOUR + number * 7 * HOUR, trade["trade_id"])
        _told(scene, why, "product_push", first + width, trades[-1]["trade_id"])

    return case


def _before(
    hour: int, shift: timedelta = timedelta(0), *, days: int = 0, minute: int = 0
) -> Callable[[Scene], datetime]:
    return lambda scene: scene.at(hour, minute, days=days) + shift


HALF = 30 * MINUTE
CASES: tuple[Case, ...] = (
    _probing([*HOURLY, HOUR]),
    _probing([*HOURLY, HOUR + MICRO], "the first is an hour and a microsecond old"),
    _probing([*HOURLY, HOUR], "two targets", targets=2),
    _probing(HOURLY, "four refusals"),
    _probing([*HOURLY, 59 * MINUTE], start=(23, 30)),  # the day after is the day that completes it
    _repeated(60 * SECOND, "the fifth repeats the fourth within a minute"),
    _repeated(60 * SECOND + MICRO),
    _probed(DAY),
    _probed(DAY + MICRO, "a day and a microsecond before"),
    _probed(MICRO, code=NOT_OWNER),
    _probed(timedelta(0), "refused at the instant of the trade"),
    _probed(HOUR, "another reason than whose customer it is", code=SCOPE),
    _probed(HOUR, "an assignment began between", assigned=HALF),
    _probed(HOUR, "an assignment began with the trade", assigned=HOUR),
    _probed(HOUR, assigned=-MICRO),
    _product_probed(3, DAY),
    _product_probed(3, DAY + MICRO, "the first of three is too old"),
    _product_probed(2, 5 * HOUR, "two refusals"),
    _burst(_before(20), HALF),
    _burst(_before(20, -MICRO), HALF, "the first is in working time by a microsecond"),
    _burst(_before(20), HALF + MICRO, "half an hour and a microsecond"),
    _burst(_before(20), HALF, "nine events", count=9),
    _burst(_before(8, -HALF - MICRO), HALF),  # the last before eight
    _burst(_before(8, -HALF), HALF, "the last at eight"),
    _burst(_before(23, minute=45), HALF),  # across midnight: of the day that completes it
    _burst(_before(12), HALF, "at noon of a working day"),
    _burst(_before(12, days=-4), HALF),  # of a Saturday
    _mixed,
    _push(5 * DAY),
    _push(5 * DAY + MICRO, "the first is five days and a microsecond old"),
    _push(4 * DAY, "seven customers", count=PUSHED - 1),
    _push(4 * DAY, others=PUSHED),  # exactly half
    _push(4 * DAY, "less than half of all requests", others=PUSHED + 1),
    _push(4 * DAY, "a product of R2 or below", tame=True),
    _push(4 * DAY, "the eighth was refused", last_refused=True),
)


def plant(world: World, planted: Planted, tag: str) -> None:
    """Plays the cases. A short story may not have enough trades to ask for: then it has no advisors either."""
    shelf = _shelf(world)
    if shelf is None:
        return
    midweek = world.end - timedelta(days=2)
    while midweek.weekday() != 2:
        midweek -= DAY
    for number, case in enumerate(CASES, start=1):
        case(Scene(world, planted, shelf, f"D{number:02d}-{tag}", midweek))


def _shelf(world: World) -> Shelf | None:
    rows = world.tables["trades.csv"]
    versions: dict[str, int] = defaultdict(int)
    for row in rows:
        versions[row["trade_id"]] += 1
    rated: dict[str, int] = defaultdict(int)
    for row in world.tables["products.csv"]:
        rated[row["product_id"]] += 1
    # by product the first purchase of each customer
    bought: dict[str, dict[str, Cells]] = defaultdict(dict)
    for row in rows:
        plain = row["trade_type"] == "buy" and row["status"] == "executed" and not row["plan_id"]
        if plain and row["version"] == "1" and versions[row["trade_id"]] == 1 and rated[row["product_id"]] == 1:
            bought[row["product_id"]].setdefault(row["customer_id"], row)

    def level(product_id: str) -> int:
        return world.products[product_id].risk_level

    known = [product_id for product_id in sorted(bought) if product_id in world.products]

    def best(products: list[str]) -> str:
        return max(products, key=lambda one: (len(bought[one]), one), default="")

    low = [one for one in known if level(one) <= 2]
    most_low = best(low)
    tame = list(bought[most_low].values())
    pushed = list(bought[best([one for one in known if level(one) >= 3])].values())
    others = [row for product_id in low if product_id != most_low for row in list(bought[product_id].values())[:4]]
    if len(pushed) < PUSHED or len(tame) < PUSHED or len(others) < PUSHED + 1:
        return None
    return Shelf(pushed[:PUSHED], tame[:PUSHED], others)
