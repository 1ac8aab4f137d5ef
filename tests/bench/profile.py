"""A cached profile read with its access decision, beside a bare GET and JSON parse by the same client."""

from __future__ import annotations

import json
from typing import Any

from config.base.clock import now, rfc3339
from config.base.redis import state
from guard.access.services import Caller, authenticate, issue_key
from memory.profiles import keys, selectors
from memory.profiles.models import CustomerProfileL1
from tests.bench.rates import Slice, sync_slice

CUSTOMER = "bench-customer"

# A customer who has told what one does in a few talks: about 1.2 KB in the cache.
PAYLOAD: dict[str, Any] = {
    "schema_version": 1,
    "occupation": "中学教师",
    "income_band": "300-500k",
    "net_assets_band": "1-3m",
    "experience_years": 6,
    "complex_experience": False,
    "goals": [
        {"kind": "retirement", "amount": "2000000.00", "date": "2040-01-01", "priority": 1},
        {"kind": "education", "amount": "600000.00", "date": "2033-09-01", "priority": 2},
    ],
    "horizon_months": 120,
    "liquidity_needs": [{"amount": "50000.00", "by": "2027-06-30"}],
    "max_drawdown_pct": 12.5,
    "preferences": {"like": ["债券基金", "指数基金"], "avoid": ["烟草", "单一股票"]},
    "do_not_contact": {"channels": ["phone"], "hours": "22:00-08:00"},
    "language": "zh-CN",
    "consents": [{"purpose": "advice", "granted_at": "2026-01-01T00:00:00.000000Z"}],
}


def profile_slices() -> dict[str, Slice]:
    """read: matrix, cache and derived fields, as a Python caller has it. by key: the agent's key is checked too."""
    moment = now()
    core = {
        "schema_version": 1,
        "name": "王小明",
        "birth_date": "1968-05-01",
        "investor_type": "ordinary",
        "c_level": "C3",
        "is_lowest": False,
        "assessed_at": rfc3339(moment),
        "valid_until": "2099-01-01",
    }
    CustomerProfileL1.objects.get_or_create(
        customer_id=CUSTOMER, defaults={"payload": PAYLOAD, "core": core, "core_synced_at": moment}
    )
    caller = Caller("default", "customer", CUSTOMER)
    key = issue_key(agent="customer").key
    name = keys.L1(customer_id=CUSTOMER)
    client = state()

    def read() -> Any:
        return selectors.read_l1(caller=caller, customer_id=CUSTOMER)

    def by_key() -> Any:
        return selectors.read_l1(caller=authenticate(key=key, actor_id=CUSTOMER), customer_id=CUSTOMER)

    def bare() -> Any:
        text = client.get(name)
        if text is None:  # its 10 minutes are over
            read()
            text = client.get(name)
        return json.loads(str(text))

    assert read()["occupation"] == bare()["occupation"]
    return {"read": sync_slice(read), "by key": sync_slice(by_key), "GET": sync_slice(bare)}
