"""Plain helpers: what advisors did, at a time of the test's choosing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

from guard.access.services import Caller, refuse
from guard.audit.models import AuditLog
from memory.core.importer import import_directory
from memory.core.models import CoreTrade
from risk.alerts.models import HitState, RiskAlertHit
from risk.conduct.services import report_trade_request
from tests.memory.core.build import TRADE, write

MINUTE = timedelta(minutes=1)
WEI = Caller("default", "advisor", "wei")
# A Monday in Shanghai, in working time.
NOON = datetime(2026, 6, 15, 12, 0, tzinfo=ZoneInfo("Asia/Shanghai")).astimezone(UTC)


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    with mock.patch("django.utils.timezone.now", return_value=moment):
        yield


def make_refusal(
    customer: str = "c1", at: datetime = NOON, *, caller: Caller = WEI, code: str = "NOT_ASSIGNED"
) -> AuditLog:
    with clock_at(at):
        refuse(caller, code, "profile_l2", customer, "no", action="read", customer_id=customer)
    return AuditLog.objects.order_by("-id")[0]


def make_product_refusal(product: str = "p5", at: datetime = NOON, *, caller: Caller = WEI) -> AuditLog:
    with clock_at(at):
        refuse(caller, "AUTH_403_SCOPE", "core_product", product, "no", action="read")
    return AuditLog.objects.order_by("-id")[0]


def make_request(trade_id: str = "t1", at: datetime = NOON, *, caller: Caller = WEI, **more: Any) -> AuditLog:
    with clock_at(at):
        return report_trade_request(caller=caller, trade_id=trade_id, **more)


def make_trade(trade_id: str = "t1", at: datetime = NOON, customer: str = "c1", **fields: Any) -> CoreTrade:
    """Into the table itself, without the importer's marks."""
    values = {
        "version": 1, "product_id": "p5", "advisor_id": "wei", "trade_type": "buy", "amount": Decimal(1000),
        "currency": "CNY", "fx_cny": Decimal(1), "price": Decimal(1), "status": "executed", **fields,
    }  # fmt: skip
    return CoreTrade.objects.create(trade_id=trade_id, customer_id=customer, traded_at=at, **values)


def import_trade(directory: Any, trade_id: str = "t1", at: datetime = NOON, **fields: str) -> None:
    row = {**TRADE, "trade_id": trade_id, "traded_at": at.isoformat(), **fields}
    report = import_directory(tenant="default", directory=write(directory, trades=[row]))
    assert not report.bad


def make_probing(start: datetime = NOON, caller: Caller = WEI, count: int = 5) -> None:
    for index in range(count):
        make_refusal(f"c{index % 3 + 1}", start + index * 2 * MINUTE, caller=caller, code="AUTH_403_SCOPE")


def live() -> list[tuple[str, str, str]]:
    """(rule, evidence key, trade id) of what stands."""
    hits = RiskAlertHit.objects.filter(state=HitState.LIVE).order_by("rule_id", "evidence_key")
    return list(hits.values_list("rule_id", "evidence_key", "trade_id"))
