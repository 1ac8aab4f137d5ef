"""A cached snapshot of 500 positions and a kept answer, beside a bare GET and JSON parse by the same kind of client."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from config.base.clock import business_date, now
from guard.access.services import Caller
from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreProduct
from memory.profiles import leased
from memory.profiles.answers import services as answers
from memory.profiles.snapshots import keys
from memory.profiles.snapshots.selectors import read_snapshot
from memory.profiles.snapshots.services import load_snapshot
from tests.bench.rates import Slice, sync_slice

CUSTOMER, ADVISOR = "bench-holder", "bench-advisor"
POSITIONS = 500
PAIR = {"advisor_id": ADVISOR, "customer_id": CUSTOMER}


def make_holdings(positions: int = POSITIONS) -> None:
    today = business_date(now())
    CoreCustomer.objects.get_or_create(customer_id=CUSTOMER, defaults={"investor_type": "ordinary"})
    CoreAssessment.objects.create(customer_id=CUSTOMER, assessed_at=now() - timedelta(days=9), c_level=3)
    CoreAssignment.objects.get_or_create(**PAIR)
    names = [f"bench-{number}" for number in range(positions)]
    CoreProduct.objects.bulk_create(
        CoreProduct(product_id=name, risk_level=1 + at % 5, asset_class="mixed", issuer_id=f"i{at % 9}")
        for at, name in enumerate(names)
    )
    CorePosition.objects.bulk_create(
        CorePosition(customer_id=CUSTOMER, product_id=name, as_of=day, market_value=1000 + at)
        for day in (today, today - timedelta(days=30))
        for at, name in enumerate(names)
    )


def snapshot_slices() -> dict[str, Slice]:
    """read: matrix, assignment (asked once a second), cache, assessment. load: from the core, unchanged figures."""
    make_holdings()
    caller = Caller("default", "advisor", ADVISOR)
    name = keys.SNAPSHOT(**PAIR)
    client = leased.client()
    asked: dict[str, Any] = {"question": "什么是 R2 基金？", "model": "bench", "knowledge_version": "1"}

    def read() -> Any:
        return read_snapshot(caller=caller, **PAIR)

    def load() -> Any:
        return load_snapshot(tenant="default", **PAIR)

    def bare() -> Any:
        text = client.get(name)
        if text is None:  # its 15 minutes are over
            read()
            text = client.get(name)
        return json.loads(str(text))

    def answer() -> Any:
        return answers.get(caller=caller, **asked)

    lease = answer().lease
    if lease:
        answers.put(caller=caller, **asked, answer="中低风险。" * 100, made_from="public", lease=lease)
    assert read()["total"] == bare()["total"]
    assert answer().answer
    works = {"read": read, "load": load, "answer": answer, "GET": bare}
    return {name: sync_slice(work) for name, work in works.items()}
