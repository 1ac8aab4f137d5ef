"""Admission over HTTP: statuses, headers, problems; settle, release, renew."""

from __future__ import annotations

import ipaddress
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from guard.access.services import issue_key
from guard.admission import limits
from guard.admission.blocks import block_actor
from guard.admission.models import AdmissionLimit, BudgetLedger
from guard.admission.policy import policy
from guard.admission.services import admit
from tests.guard.admission.helpers import ALICE, audit_rows, make_limit, make_wide

pytestmark = pytest.mark.django_db(transaction=True)


class Service:
    """An agent service with a key of its own."""

    def __init__(self, agent: str = "customer") -> None:
        self.key, self.client = issue_key(agent=agent).key, Client()

    def post(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        actor: str = "alice",
        headers: dict[str, str] | None = None,
    ) -> Any:
        return self.client.post(
            f"/api/v1/admissions{path}",
            json.dumps(body or {}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.key}", "X-Actor-Id": actor, **(headers or {})},
        )


def test_admitted_and_what_remains() -> None:
    make_wide(rate=3, quota=10, budget="2.5", user_running=4)
    answer = Service().post("", {"estimate": "0.50"})
    assert answer.status_code == 201
    body = answer.json()
    shown = {one["name"]: (one["limit"], one["remaining"]) for one in body["limits"]}
    assert shown == {"rate": (3, 2), "quota": (10, 9), "budget": ("2.500000", "2.000000"), "user_running": (4, 3)}
    assert (body["allowed"], body["lease"], body["fence"]) == (True, 60.0, None)
    assert '"rate";q=3;w=60' in answer["RateLimit-Policy"]
    assert '"rate";r=2' in answer["RateLimit"]
    assert '"quota";r=9;t=' in answer["RateLimit"]
    assert "Retry-After" not in answer


def test_refused_with_its_limit_and_when_to_come_again() -> None:
    make_wide(rate=1)
    service = Service()
    assert service.post("").status_code == 201
    answer = service.post("")
    assert (answer.status_code, answer["Content-Type"]) == (429, "application/problem+json")
    body = answer.json()
    assert (body["code"], body["limit"], body["allowed"], body["remaining"]) == ("RATE_LIMITED", "rate", 1, 0)
    assert 59 <= int(answer["Retry-After"]) <= 61
    assert answer["RateLimit"] == f'"rate";r=0;t={answer["Retry-After"]}'
    assert answer["RateLimit-Policy"] == '"rate";q=1;w=60'
    assert body["trace_id"] == answer["X-Trace-Id"]
    assert audit_rows("admission")[0].trace_id == body["trace_id"]


@pytest.mark.parametrize(
    ("narrow", "status", "code"),
    [
        ({"quota": 0}, 429, "QUOTA_EXCEEDED"),
        ({"budget": "0.1"}, 402, "BUDGET_EXCEEDED"),
        ({"tenant_running": 0}, 429, "TOO_MANY_RUNNING"),
        ({"user_running": 0}, 429, "TOO_MANY_RUNNING"),
        ({"hourly": 0}, 429, "RATE_LIMITED"),
        ({"ip": 0}, 429, "RATE_LIMITED"),
        ({"rate": 0}, 429, "RATE_LIMITED"),
    ],
)
def test_each_limit_has_its_code(narrow: dict[str, Any], status: int, code: str) -> None:
    make_wide(**narrow)
    answer = Service().post("", {"estimate": "0.2", "ip": "192.0.2.1"})
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (status, code, next(iter(narrow)))
    assert int(answer["Retry-After"]) >= 1


def test_an_address_is_the_requests_own_whatever_it_says_of_itself() -> None:
    """Each call names another address in every header that somebody might read."""
    make_wide(ip=3)
    service = Service()
    answers = []
    wait_for_a_minute_with_room()
    for n in range(6):
        lies = f"203.0.113.{n}"
        answers.append(
            service.post(
                "",
                actor=f"actor-{n}",
                headers={"X-Forwarded-For": lies, "X-Real-IP": lies, "Forwarded": f"for={lies}", "Client-IP": lies},
            ).status_code
        )
    assert answers == [201] * 3 + [429] * 3


def test_behind_a_configured_proxy_it_is_the_clients(settings: Any) -> None:
    settings.TRUSTED_PROXIES = [ipaddress.ip_network("127.0.0.0/8")]
    make_wide(ip=1)
    service = Service()

    def ask(forwarded: str) -> int:
        return int(service.post("", headers={"X-Forwarded-For": forwarded}).status_code)

    wait_for_a_minute_with_room()
    assert [ask("203.0.113.1"), ask("203.0.113.2"), ask("203.0.113.1")] == [201, 201, 429]
    # what the client wrote in front of it is not looked at
    assert [ask("198.51.100.9, 203.0.113.1"), ask("198.51.100.8, 203.0.113.2")] == [429, 429]


def test_an_agent_service_states_whose_address_it_is() -> None:
    make_wide(ip=1)
    service = Service()
    wait_for_a_minute_with_room()
    stated = [service.post("", {"ip": ip}).status_code for ip in ("192.0.2.1", "192.0.2.2", "192.0.2.1")]
    assert stated == [201, 201, 429]
    # of one household with version 6 all addresses are one
    assert service.post("", {"ip": "2001:db8::1"}).status_code == 201
    assert service.post("", {"ip": "2001:db8::ffff"}).status_code == 429
    assert service.post("").status_code == 201  # its own has not been counted
    assert service.post("").status_code == 429


def wait_for_a_minute_with_room() -> None:
    """A fixed window may end between two calls: not within the next five seconds."""
    left = 60 - time.time() % 60
    if left < 5:
        time.sleep(left + 0.1)


def test_a_blocked_actor() -> None:
    block_actor(tenant="default", actor_id="alice", code="INJECTION", by="officer")
    service = Service()
    answer = service.post("")
    assert (answer.status_code, answer.json()["code"]) == (403, "ACTOR_BLOCKED")
    assert 890 <= int(answer["Retry-After"]) <= 900
    assert service.post("", actor="bob").status_code == 201


def test_settle_release_renew() -> None:
    make_wide(budget="2")
    service = Service()
    first, second = (service.post("", {"estimate": "1"}).json()["admission_id"] for _ in range(2))
    assert service.post("", {"estimate": "1"}).status_code == 402
    assert service.post(f"/{first}/renew", {"lease": 30}).json() == {"lease": 30.0}
    for repeated in (False, True):
        answer = service.post(f"/{first}/settle", {"actual": "0.25", "action": "chat"})
        assert (answer.status_code, answer.json()["amount"], answer.json()["repeated"]) == (200, "0.250000", repeated)
    assert service.post(f"/{first}/settle", {"actual": "0.26"}).json()["code"] == "ALREADY_SETTLED"
    assert service.post(f"/{first}/renew").json()["code"] == "LEASE_LOST"
    assert service.post(f"/{second}/release").json() == {"released": True}
    assert service.post(f"/{second}/release").json() == {"released": False}
    assert service.post("", {"estimate": "1.75"}).status_code == 201
    assert BudgetLedger.objects.get().action == "chat"
    for path in (f"/{first}/settle", "/nothing/settle"):
        answer = service.post(path, {"actual": "1"}, actor="bob")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [{"estimate": 0.1}, {"estimate": "-1"}, {"estimate": "1e3"}, {"estimate": "0.0000001"}, {"other": 1},
     {"ip": "x"}, {"lease": 0}, {"action": "a b"}, {"run_id": "r"}, {"estimate": "9999999999"},
     {"estimate": "１２"}, {"estimate": "1_0"}, {"lease": "5"}, {"lease": True}, {"slot": "no"}, {"slot": 0},
     {"estimate": "1\n"}],
)  # fmt: skip
def test_what_is_no_request(body: dict[str, Any]) -> None:
    assert Service().post("", body).status_code == 422


def test_who_has_no_key() -> None:
    assert Client().post("/api/v1/admissions", "{}", content_type="application/json").status_code == 401


def test_a_run_needs_a_session_of_its_own() -> None:
    from tests.memory.sessions.helpers import make_session

    service, session = Service(), make_session()
    answer = service.post("", {"action": "run", "run_id": "run-1", "session_id": session})
    fence = answer.json()["fence"]
    assert (answer.status_code, fence) == (201, 1)
    of_run = {"run_id": "run-1", "session_id": session, "fence": fence}
    admission = answer.json()["admission_id"]
    assert service.post("", {"run_id": "run-2", "session_id": session}).json()["code"] == "RUN_ACTIVE"
    assert service.post("", {"run_id": "run-2", "session_id": session}, actor="bob").json()["code"] == "NOT_OWNER"
    assert service.post(f"/{admission}/renew", of_run).status_code == 200
    # another fence, another session, no run at all: it is none of those
    for other in ({**of_run, "fence": 7}, {**of_run, "session_id": make_session()}, {}):
        assert service.post(f"/{admission}/renew", other).json()["code"] == "NOT_FOUND"
    assert service.post(f"/{admission}/settle", {**of_run, "actual": "0.1"}).status_code == 200
    assert service.post("", {"run_id": "run-2", "session_id": session}).json()["fence"] == 2


# --- limits as rows ---------------------------------------------------------------------------------------------


def test_a_limit_set_elsewhere_is_in_force_within_five_seconds() -> None:
    make_wide(rate=100)
    assert admit(ALICE).allowed
    known = policy()
    began = time.monotonic()
    # As another process does it: this one is told nothing.
    AdmissionLimit.objects.filter(kind="rate").update(current=None)
    AdmissionLimit.objects.create(tenant="default", kind="rate", value=0, version=9, changed_by="officer")
    assert policy() is known
    while admit(ALICE, action="look", slot=False).allowed:
        assert time.monotonic() - began < 5
        time.sleep(0.05)


def test_versions_and_what_is_written_of_them() -> None:
    first = limits.set_limit(tenant="default", kind="rate", value=5, by="officer", expected_version=0)
    limits.set_limit(tenant="default", kind="rate", value=6, by="officer", expected_version=first.version)
    with pytest.raises(limits.DomainError, match="VERSION_CONFLICT"):
        limits.set_limit(tenant="default", kind="rate", value=7, by="officer", expected_version=first.version)
    row = AdmissionLimit.objects.get(current=1)
    limits.retire_limit(limit_id=row.pk, tenant="default", by="officer")
    limits.set_limit(tenant="default", kind="rate", value=None, by="officer")
    rows = audit_rows("limit_change")
    assert [one.decision for one in rows] == ["activated", "changed", "retired", "activated"]
    assert (rows[1].input_summary["from"], rows[1].input_summary["to"]) == ("5.000000", "6.000000")
    assert list(AdmissionLimit.objects.order_by("version").values_list("version", "current", "retired")) == [
        (1, None, False), (2, None, False), (3, None, True), (4, 1, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "more"),
    [("rate", {"value": "1.5"}), ("rate", {"value": -1}), ("rate", {"value": 10_001}), ("speed", {"value": 1}),
     ("budget", {"value": 1, "actor_id": "alice"}), ("ip", {"value": 1, "agent": "customer"}),
     ("rate", {"value": 1, "agent": "nobody"}), ("rate", {"value": 1, "action": "chat"})],
)  # fmt: skip
def test_limits_that_mean_nothing(kind: str, more: dict[str, Any]) -> None:
    with pytest.raises(limits.DomainError, match="INVALID_REQUEST"):
        make_limit(kind, more.pop("value"), **more)


# --- the console ------------------------------------------------------------------------------------------------


@pytest.fixture
def officer(django_user_model: Any) -> Client:
    from django.contrib.auth.models import Group

    person = django_user_model.objects.create_user("olga", password="x", is_staff=True)
    person.groups.add(Group.objects.get(name="risk_officer"))
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def operator(django_user_model: Any) -> Client:
    from django.contrib.auth.models import Group

    person = django_user_model.objects.create_user("petra", password="x", is_staff=True)
    person.groups.add(Group.objects.get(name="platform_admin"))
    client = Client()
    client.force_login(person)
    return client


def test_an_operator_sets_and_takes_away_a_limit(operator: Client, officer: Client) -> None:
    page = "/admin/guard/admissionlimit/"
    assert operator.get(f"{page}add/").status_code == 200
    answer = operator.post(f"{page}add/", {"kind": "rate", "value": "0", "actor_id": "alice", "reason": "asked"})
    assert answer.status_code == 302, answer.content
    assert admit(ALICE).refused_by == "rate"
    assert operator.get(page).status_code == 200
    wrong = operator.post(f"{page}add/", {"kind": "budget", "value": "1", "actor_id": "alice", "reason": "x"})
    assert b"cannot be narrowed" in wrong.content
    pk = AdmissionLimit.objects.get().pk
    operator.post(page, {"action": "retire", "_selected_action": [pk]})
    assert admit(ALICE).allowed
    assert officer.get(f"{page}add/").status_code == 403
    assert operator.get("/admin/guard/budgetledger/").status_code == 200


def test_an_officer_blocks_and_pauses(officer: Client) -> None:
    answer = officer.post("/admin/guard/actorblock/add/", {"actor_id": "alice", "minutes": "5", "reason": "probing"})
    assert answer.status_code == 302, answer.content
    assert 290 < admit(ALICE).retry_after <= 300
    page = officer.get("/admin/guard/actorblock/")
    assert page.status_code == 200
    from guard.admission.models import ActorBlock, AgentPause

    officer.post("/admin/guard/actorblock/", {"action": "lift", "_selected_action": [ActorBlock.objects.get().pk]})
    assert admit(ALICE).allowed
    officer.post("/admin/guard/agentpause/add/", {"agent": "customer", "reason": "wrong answers"})
    assert admit(ALICE).refused_by == "pause"
    assert officer.get("/admin/guard/agentpause/").status_code == 200
    officer.post("/admin/guard/agentpause/", {"action": "lift", "_selected_action": [AgentPause.objects.get().pk]})
    assert admit(ALICE).allowed
    assert [row.actor_id for row in audit_rows("agent_pause")] == ["olga", "olga"]


@pytest.fixture
def manager(django_user_model: Any) -> Client:
    from django.contrib.auth.models import Group

    person = django_user_model.objects.create_user("mei", password="x", is_staff=True)
    person.groups.add(Group.objects.get(name="risk_manager"))
    client = Client()
    client.force_login(person)
    return client


def test_a_manager_corrects_the_months_budget_once_and_on_the_record(
    manager: Client, operator: Client, officer: Client
) -> None:
    make_wide(budget="10")
    page = "/admin/guard/budgetledger/"
    form = manager.get(f"{page}add/").context["form"]
    sent = {"amount": "2.5", "reason": "the provider billed late", "reference": form["reference"].value()}
    for _ in range(2):  # the button was pressed twice
        assert manager.post(f"{page}add/", sent).status_code == 302
    row = BudgetLedger.objects.get()
    assert (row.kind, row.amount, row.actor_id, row.reason) == ("adjustment", Decimal("2.5"), "mei", sent["reason"])
    assert admit(ALICE, estimate="7.6").refused_by == "budget"
    assert [one.decision for one in audit_rows("budget")] == ["adjusted", "refused"]
    assert audit_rows("budget")[0].actor_id == "mei"
    for wrong in ({"amount": "0"}, {"reason": ""}, {"amount": "0.0000001"}, {"amount": "x"}):
        fresh = manager.get(f"{page}add/").context["form"]["reference"].value()
        assert manager.post(f"{page}add/", {**sent, "reference": fresh, **wrong}).status_code == 200
    for other, sees in ((operator, 200), (officer, 403)):
        assert other.get(page).status_code == sees
        assert other.post(f"{page}add/", {**sent, "reference": "another"}).status_code == 403
    assert "the provider billed late" in manager.get(page).content.decode()
    assert manager.get(f"{page}{row.pk}/change/").status_code == 200
    assert manager.post(f"{page}{row.pk}/change/", {"amount": "9"}).status_code == 403
    assert BudgetLedger.objects.count() == 1
