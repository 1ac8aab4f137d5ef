"""A second reading of the specification's section 4, written from its words alone: every row against every other, with
plain datetimes and no window that moves. Slow, and as unlike the rule as it can be."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from risk.rules.risk_008 import Conduct, Refusal, Request

SHANGHAI = ZoneInfo("Asia/Shanghai")
MINUTE = timedelta(minutes=1)
DAY = timedelta(hours=24)


def local_day(moment: datetime) -> date:
    return moment.astimezone(SHANGHAI).date()


def before(row: Refusal | Request, other: Refusal | Request) -> bool:
    """row is not later than other."""
    return (row.at, row.id) <= (other.at, other.id)


def once_a_minute(rows: list[Refusal | Request]) -> list[Refusal | Request]:
    kept: list[Refusal | Request] = []
    for row in sorted(rows, key=lambda row: (row.at, row.id)):
        repeats = False
        for one in kept:
            if isinstance(row, Refusal) and isinstance(one, Refusal):
                same = row.code == one.code and row.target == one.target
            elif isinstance(row, Request) and isinstance(one, Request):
                same = row.trade_id == one.trade_id and row.refused == one.refused
            else:
                same = False
            if same and row.at - one.at <= MINUTE:
                repeats = True
        if not repeats:
            kept.append(row)
    return kept


def outside_hours(moment: datetime, conduct: Conduct) -> bool:
    local = moment.astimezone(SHANGHAI)
    worked = local.strftime("%a") not in ("Sat", "Sun")
    if local.date() in conduct.calendar.exceptions:
        worked = conduct.calendar.exceptions[local.date()]
    return not worked or local.hour < 8 or local.hour >= 20


def in_campaign(product: str, moment: datetime, conduct: Conduct) -> bool:
    return any(
        first <= local_day(moment) and local_day(moment) <= last for first, last in conduct.campaigns.get(product, [])
    )


def is_push(row: Request, product: str, conduct: Conduct) -> bool:
    trade = row.trade
    return (
        not row.refused
        and trade is not None
        and trade.status == "executed"
        and trade.product_id == product != ""
        and trade.trade_type in ("buy", "switch_in")
        and trade.risk_level is not None
        and trade.risk_level >= 3
        and not in_campaign(product, row.at, conduct)
    )


def expected(conduct: Conduct) -> set[tuple[str, str]]:
    """(evidence key, trade id) of everything that the words call a finding; of a day and pattern the first."""
    refusals = once_a_minute(list(conduct.refusals))
    requests = list(conduct.requests)
    events = once_a_minute([*conduct.refusals, *conduct.requests])
    found: list[tuple[datetime, int, str, str]] = []

    for row in refusals:
        window = [one for one in refusals if before(one, row) and row.at - one.at <= 60 * MINUTE]
        if len(window) >= 5 and len({one.target for one in window}) >= 3:
            found.append((row.at, row.id, "probing", ""))

    for row in events:
        window = [
            one
            for one in events
            if before(one, row) and row.at - one.at <= 30 * MINUTE and outside_hours(one.at, conduct)
        ]
        if outside_hours(row.at, conduct) and len(window) >= 10:
            found.append((row.at, row.id, "off_hours_burst", ""))

    for request in requests:
        trade = request.trade
        if request.refused or trade is None or trade.status != "executed":
            continue
        hit = False
        for refusal in conduct.refusals:
            if refusal.code not in ("NOT_OWNER", "NOT_ASSIGNED") or refusal.customer_id != trade.customer_id:
                continue
            dt = trade.traded_at - refusal.at
            between = [start for start in trade.assigned_from if refusal.at <= start <= trade.traded_at]
            if timedelta(0) < dt <= DAY and not between:
                hit = True
        naming = [
            one
            for one in refusals
            if isinstance(one, Refusal)
            and trade.product_id
            and trade.product_id in (one.target, *one.names)
            and timedelta(0) < trade.traded_at - one.at <= DAY
        ]
        if hit or len(naming) >= 3:
            found.append((request.at, request.id, "probe_then_trade", request.trade_id))

    for request in requests:
        product = request.trade.product_id if request.trade else ""
        if not is_push(request, product, conduct):
            continue
        own = [
            one
            for one in requests
            if before(one, request)
            and request.at - one.at <= 5 * DAY
            and not one.refused
            and (one.trade is None or one.trade.status == "executed")
        ]
        of_it = [one for one in own if is_push(one, product, conduct)]
        customers = {one.trade.customer_id for one in of_it if one.trade}
        share = len({one.trade_id for one in of_it}) / len({one.trade_id for one in own})
        if len(customers) >= 8 and share >= 0.5:
            found.append((request.at, request.id, "product_push", request.trade_id))

    first: dict[tuple[date, str], str] = {}
    for moment, _id, pattern, trade_id in sorted(found):
        first.setdefault((local_day(moment), pattern), trade_id)
    return {(f"{conduct.advisor_id}:{day}:{pattern}", trade_id) for (day, pattern), trade_id in first.items()}
