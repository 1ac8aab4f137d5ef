"""The cast: customers Alice and Bob, advisor Wei who has Alice and advisor Lin who has Bob, an analyst, an officer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.test import Client

from config.base.clock import now
from guard.access.services import Caller, issue_key
from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer
from risk.alerts.models import AlertStatus, AlertType, RiskAlert

ALICE, BOB = "cust-alice", "cust-bob"
WEI, LIN = "adv-wei", "adv-lin"

ACTOR = {"customer": ALICE, "advisor": WEI, "analyst": "ana-1", "risk": "officer-1"}


def make_caller(agent: str, actor_id: str = "", tenant: str = "default") -> Caller:
    return Caller(tenant, agent, actor_id or ACTOR[agent])


def make_assignment(advisor_id: str = WEI, customer_id: str = ALICE, tenant: str = "default") -> CoreAssignment:
    return CoreAssignment.objects.create(
        tenant=tenant, advisor_id=advisor_id, customer_id=customer_id, valid_from=now() - timedelta(days=30)
    )


def make_core_customer(
    customer_id: str = ALICE, *, born: date | None = date(1950, 1, 1), **fields: Any
) -> CoreCustomer:
    return CoreCustomer.objects.create(
        customer_id=customer_id, name="王小明", kind="natural", birth_date=born, investor_type="ordinary", **fields
    )


def make_assessment(customer_id: str = ALICE, *, at: datetime | None = None, c_level: int = 3) -> CoreAssessment:
    return CoreAssessment.objects.create(
        customer_id=customer_id, assessed_at=at or now() - timedelta(days=10), c_level=c_level, is_lowest=False
    )


def make_alert(
    customer_id: str = ALICE,
    *,
    status: str = AlertStatus.CONFIRMED,
    alert_type: str = AlertType.EVENT,
    tenant: str = "default",
    rule_ids: Sequence[str] = ("RISK-001",),
) -> RiskAlert:
    return RiskAlert.objects.create(
        tenant=tenant, customer_id=customer_id, status=status, alert_type=alert_type, score=80, rule_ids=list(rule_ids)
    )


@dataclass
class Agent:
    """An agent service over HTTP, acting for one person."""

    key: str
    actor_id: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = body if isinstance(body, bytes | str) else json.dumps(body) if body is not None else ""
        return Client().generic(
            method,
            f"/api/v1{path}",
            data=data,
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.key}", "X-Actor-Id": self.actor_id, **headers},
        )

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("PUT", path, body, **headers)


def make_agent(agent: str, actor_id: str = "", tenant: str = "default") -> Agent:
    return Agent(issue_key(agent=agent, tenant=tenant).key, actor_id or ACTOR[agent])
