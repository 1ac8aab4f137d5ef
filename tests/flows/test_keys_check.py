"""After a message, a profile and a trade, every key on the server is one that was declared: name, type, lifetime."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from config import key_registry
from config.base import redis as base_redis
from config.base.keys import match
from guard.access.services import issue_key
from memory.core.importer import import_tables
from memory.sessions.drain import drain
from risk.alerts.models import RiskAlert
from risk.feed.services import publish
from risk.rules.services import scan
from tests.flows.test_bad_input import request

pytestmark = pytest.mark.django_db(transaction=True)


def check() -> tuple[int, dict[str, Any]]:
    """Exit code and report of `manage.py keys --check --json`."""
    out = io.StringIO()
    try:
        call_command("keys", "--check", "--json", stdout=out)
    except SystemExit as stopped:
        return int(stopped.code or 0), json.loads(out.getvalue())
    return 0, json.loads(out.getvalue())


def a_message(session_id: str, tenant: str) -> None:
    key = issue_key(agent="customer", tenant=tenant).key
    assert request("POST", "/sessions", {"session_id": session_id, "customer_id": "alice"}, key=key).status_code == 201
    path = f"/sessions/{session_id}"
    for durability in ("async", "sync"):
        batch = [
            {"role": "user", "content": "hello", "entry_id": f"given-{durability}"},
            {"role": "assistant", "content": "hi"},
        ]
        sent = request("POST", f"{path}/messages", {"messages": batch, "durability": durability}, key=key)
        assert sent.status_code == 200
    assert request("GET", f"{path}/messages", key=key).status_code == 200
    assert request("PATCH", f"{path}/context", {"intent": "ask", "slots": {"fund": "F1"}}, key=key).status_code == 200
    assert request("GET", f"{path}/context", key=key).status_code == 200
    drain(seconds=0.5)


def a_trade(tenant: str) -> None:
    """C1 buys R5: RISK-001."""
    report = import_tables(
        tenant=tenant,
        tables={
            "customers.csv": [{"customer_id": "alice", "name": "A", "kind": "natural", "investor_type": "ordinary"}],
            "products.csv": [
                {"product_id": "F1", "issuer_id": "I1", "asset_class": "equity", "risk_level": "R5",
                 "is_complex": "false", "is_cash_like": "false"}
            ],
            "assessments.csv": [
                {"customer_id": "alice", "c_level": "C1", "is_lowest": "false", "assessed_at": "2026-10-01T08:00:00Z"}
            ],
            "assignments.csv": [
                {"advisor_id": "wei", "customer_id": "alice", "valid_from": "2026-01-01T00:00:00Z", "valid_to": ""}
            ],
            "trades.csv": [
                {"trade_id": "T1", "version": "1", "customer_id": "alice", "product_id": "F1", "advisor_id": "wei",
                 "trade_type": "buy", "traded_at": "2026-11-02T02:00:00Z", "amount": "50000.00", "currency": "CNY",
                 "fx_cny": "1", "fx_usd": "7.1", "quantity": "50000", "price": "1", "fee": "0", "status": "executed",
                 "channel": "online", "settle_method": "transfer", "cross_border": "false"}
            ],
        },
    )  # fmt: skip
    assert report.bad == 0
    scan(tenant=tenant)
    assert RiskAlert.objects.filter(tenant=tenant, customer_id="alice").exists()
    publish()


def a_profile(tenant: str) -> None:
    """All three layers written and read by all who may: each key filled."""
    customer, advisor, risk = (issue_key(agent=agent, tenant=tenant).key for agent in ("customer", "advisor", "risk"))
    assert request("PUT", "/profiles/l1/alice", {"occupation": "teacher"}, key=customer).status_code in (200, 201)
    assert request("PUT", "/profiles/l2/alice/wei", {"stage": "client"}, key=advisor, actor="wei").status_code == 201
    assert request("PUT", "/profiles/l3/alice", {"risk_score": 60}, key=risk, actor="officer").status_code == 201
    for path in ("/profiles/l1/alice", "/profiles/l2/alice/wei", "/profiles/l3/alice"):
        for _ in range(2):
            assert request("GET", path, key=advisor, actor="wei").status_code == 200
    assert request("GET", "/profiles/l3/alice", key=customer).status_code == 200


def test_after_all_flows_the_registry_and_the_server_agree(own_redis_prefix: str) -> None:
    for tenant in ("default", "acme"):
        a_message(f"session-in-{tenant}-0001", tenant)
        a_trade(tenant)
        a_profile(tenant)
    code, report = check()
    assert report["findings"] == []
    assert code == 0

    client = base_redis.state()
    names = [name.removeprefix(f"{own_redis_prefix}:") for name in client.scan_iter(f"{own_redis_prefix}:*")]
    assert report["keys"] == len(names)
    kinds = {kind.pattern for name in names if (kind := match(name, key_registry.load()))}
    assert {
        "sess:{agent}:{session_id}:ctx",
        "sess:{agent}:{session_id}:msgs",
        "sess:{agent}:{session_id}:ids",
        "sess:pending",
        "profile:l1:{customer_id}",
        "profile:l2:{customer_id}:{advisor_id}",
        "profile:l3:{customer_id}",
        "risk:dedup:{customer_id}:{rule_id}:{date}",
    } <= kinds
    assert "acme:profile:l1:alice" in names
    assert "profile:l1:alice" in names


def test_what_nobody_declared_is_found(own_redis_prefix: str) -> None:
    a_message("session-in-default-0001", "default")
    client = base_redis.state()
    client.set(f"{own_redis_prefix}:profile:l9:alice", "x", ex=5)  # unknown name
    client.set(f"{own_redis_prefix}:profile:l1:alice", "{}")  # no TTL
    client.set(f"{own_redis_prefix}:profile:l1:bob", "{}", ex=9999)  # TTL too long
    client.rpush(f"{own_redis_prefix}:profile:l3:alice", "x")  # wrong type
    code, report = check()
    assert code == 1
    assert {finding["fault"] for finding in report["findings"]} >= {
        "unknown name",
        "no TTL",
        "TTL too long",
        "wrong type",
    }
    assert all(own_redis_prefix in finding["key"] or "profile" in finding["key"] for finding in report["findings"])
