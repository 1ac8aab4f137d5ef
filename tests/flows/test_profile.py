"""A profile, end to end, in a running installation: written by one agent, read by others, with processes killed at
the worst moment."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.stack import LiveStack, until

pytestmark = pytest.mark.slow  # starts web, workers and beat


@dataclass
class Agent:
    stack: LiveStack
    key: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{self.stack.url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def occupation(self, customer_id: str) -> str:
        status, profile = self.call("GET", f"/profiles/l1/{customer_id}")
        assert status == 200, profile
        return str(profile["occupation"])


def make_agent(stack: LiveStack, agent: str, actor: str) -> Agent:
    return Agent(stack, stack.agent_key(agent, actor))


# What a process does that is killed between its commit and its DEL.
DIES_BEFORE_DEL = """
import os, signal
from guard.access.services import Caller
from memory.profiles import cache, services
cache.drop_quietly = lambda changes: os.kill(os.getpid(), signal.SIGKILL)
services.write_l1(caller=Caller("default", "customer", "alice"), customer_id="alice", payload={"occupation": "judge"})
"""
CREATES_AND_DIES = DIES_BEFORE_DEL.replace("alice", "dora")
UPDATES_BY_QUERYSET = """
from memory.profiles.models import CustomerProfileL1
CustomerProfileL1.objects.filter(customer_id="alice").update(payload={"schema_version": 1, "occupation": "pilot"})
"""
CONFIRMED_ALERT = """
from risk.alerts.models import RiskAlert
RiskAlert.objects.create(customer_id="carol", status="confirmed", score=81)
"""


def test_what_other_processes_write_is_seen_and_a_killed_ones_write_within_a_second_or_so(
    live_stack: LiveStack,
) -> None:
    alice = make_agent(live_stack, "customer", "alice")
    assert alice.call("PUT", "/profiles/l1/alice", {"occupation": "teacher"})[0] == 201
    assert alice.occupation("alice") == "teacher"

    live_stack.shell(UPDATES_BY_QUERYSET)
    assert alice.occupation("alice") == "pilot"  # a second Django process, by queryset: at once

    killed = live_stack.manage("shell", "--no-imports", "-c", DIES_BEFORE_DEL, check=False)
    assert killed.returncode == -9
    assert live_stack.query("SELECT version FROM customer_profile_l1") == [(3,)]  # committed
    until(lambda: alice.occupation("alice") == "judge", seconds=3, what="the sweeper finished the dead one's DEL")
    # The outbox empties itself.
    until(lambda: live_stack.query("SELECT COUNT(*) FROM profile_change") == [(0,)], seconds=10)


def test_who_creates_a_profile_and_is_killed_before_its_del_is_seen_soon_and_history_agrees_with_what_was_served(
    live_stack: LiveStack,
) -> None:
    """That there is no profile is cached too; what readers were given meanwhile is what an as-of read says later."""
    dora = make_agent(live_stack, "customer", "dora")
    given: list[tuple[str, int, Any]] = []

    def look() -> bool:
        status, profile = dora.call("GET", "/profiles/l1/dora")
        given.append((datetime.now(UTC).isoformat().replace("+00:00", "Z"), status, profile))
        return status == 200

    assert not look()
    killed = live_stack.popen("shell", "--no-imports", "-c", CREATES_AND_DIES)
    while killed.poll() is None:
        look()
    assert killed.returncode == -9
    ended = time.monotonic()
    until(look, seconds=3, what="the sweeper finished the dead one's DEL")
    assert time.monotonic() - ended < 2  # one, on a machine that does nothing else
    until(lambda: live_stack.query("SELECT visible_at FROM profile_version WHERE customer_id = 'dora'")[0][0])
    told = [dora.call("GET", f"/profiles/l1/dora?as_of={moment}")[:2] for moment, _status, _profile in given]
    # Between the DEL and its stamp, a moment, both are true.
    differing = [place for place, answer in enumerate(told) if answer[0] != given[place][1]]
    assert len(differing) <= 1
    assert told[0][0] == 404
    last = given[-1][2]
    assert (last["occupation"], last["version"]) == ("judge", 1)
    assert dora.call("GET", "/profiles/l1/dora?version=1") == (200, last)
    [(digest, author)] = live_stack.query(
        "SELECT document_hash, author FROM profile_version WHERE customer_id = 'dora'"
    )
    assert author == "dora"
    held = until(lambda: (look(), live_stack.redis.client().get("profile:l1:dora"))[1], seconds=5)
    assert hashlib.sha256(str(held).encode()).hexdigest() == digest


def test_redis_killed_and_back_with_old_values_serves_them_for_no_longer_than_the_sweeper_needs(
    live_stack: LiveStack,
) -> None:
    bob = make_agent(live_stack, "customer", "bob")
    assert bob.call("PUT", "/profiles/l1/bob", {"occupation": "teacher"})[0] == 201
    assert bob.occupation("bob") == "teacher"
    time.sleep(1.2)  # the value is on Redis's disk (AOF, every second)
    live_stack.redis.kill()
    assert bob.occupation("bob") == "teacher"  # from MySQL
    status, written = bob.call("PUT", "/profiles/l1/bob", {"occupation": "judge"})
    assert (status, written["version"]) == (200, 2)
    assert bob.occupation("bob") == "judge"
    live_stack.redis.start()
    until(lambda: bob.occupation("bob") == "judge", seconds=10)
    time.sleep(3)
    for _ in range(5):
        assert bob.occupation("bob") == "judge"
    until(lambda: live_stack.query("SELECT COUNT(*) FROM profile_change") == [(0,)], seconds=15)


def test_three_agents_and_one_customer(live_stack: LiveStack) -> None:
    """The customer tells, risk restricts, and each sees what is theirs to see."""
    carol, risk = make_agent(live_stack, "customer", "carol"), make_agent(live_stack, "risk", "officer")
    assert carol.call("PUT", "/profiles/l1/carol", {"occupation": "nurse", "horizon_months": 60})[0] == 201
    restriction = {"code": "callback_required", "text": "we call you first", "visibility": "public"}
    body = {"risk_score": 81, "risk_level": "critical", "aml_rating": "B", "restrictions": [restriction]}
    status, refusal = risk.call("PUT", "/profiles/l3/carol", body)
    assert (status, refusal["code"]) == (409, "NEEDS_CONFIRMED_ALERT")
    live_stack.shell(CONFIRMED_ALERT)
    assert risk.call("PUT", "/profiles/l3/carol", body)[0] == 201
    for _ in range(2):
        status, part = carol.call("GET", "/profiles/l3/carol")
        assert status == 200
        assert set(part) == {
            "customer_id", "version", "assessment_status", "assessment_valid_until", "max_product_risk_level",
            "restrictions", "required_steps", "as_of",
        }  # fmt: skip
        assert part["required_steps"] == ["reassess", "callback"]
    assert risk.call("GET", "/profiles/l3/carol")[1]["aml_rating"] == "B"
    assert carol.call("PUT", "/profiles/l3/carol", {})[1]["code"] == "AUTH_403_SCOPE"
    assert carol.call("GET", "/profiles/l1/alice")[1]["code"] == "NOT_OWNER"
    assert carol.call("PUT", "/profiles/l1/carol", {"c_level": "C5"})[0] == 422
    refused = live_stack.query(
        "SELECT code, actor_id FROM audit_log WHERE event_type = 'authz' AND actor_type = 'customer' ORDER BY id"
    )
    (pseudonym,) = {actor for _, actor in refused[-2:]}
    assert [code for code, actor in refused if actor == pseudonym] == ["AUTH_403_SCOPE", "NOT_OWNER"]
    assert pseudonym.startswith("c_")

    def cached() -> Any:
        carol.call("GET", "/profiles/l3/carol")  # the sweeper may just have dropped it
        return live_stack.redis.client().get("profile:l3:carol")

    held = until(cached, seconds=5, what="l3 is cached")
    text = held.decode() if isinstance(held, bytes) else held
    assert json.loads(text)["risk_score"] == 81
    assert "aml" not in text
