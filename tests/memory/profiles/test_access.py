"""The access matrix over HTTP: every agent, layer, verb and relation to the customer, and what each refusal leaves."""

from __future__ import annotations

from typing import Any

import pytest

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of
from memory.profiles import selectors, services
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3
from tests.memory.profiles.helpers import ALICE, BOB, LIN, WEI, make_agent, make_assignment, make_caller

pytestmark = pytest.mark.django_db(transaction=True)

OK, SCOPE, OWNER, ASSIGNED = "ok", "AUTH_403_SCOPE", "NOT_OWNER", "NOT_ASSIGNED"

# Alice is the customer agent's own customer and is assigned to Wei, the advisor agent's actor; Bob is neither.
PATHS = {
    ("l1", "alice"): f"/profiles/l1/{ALICE}",
    ("l1", "bob"): f"/profiles/l1/{BOB}",
    ("l2", "alice"): f"/profiles/l2/{ALICE}/{WEI}",
    ("l2", "bob"): f"/profiles/l2/{BOB}/{WEI}",
    ("l2", "lins"): f"/profiles/l2/{ALICE}/{LIN}",
    ("l3", "alice"): f"/profiles/l3/{ALICE}",
    ("l3", "bob"): f"/profiles/l3/{BOB}",
}
MATRIX = {
    # agent: {(layer, verb): {whose: answer}}
    "customer": {
        ("l1", "GET"): {"alice": OK, "bob": OWNER},
        ("l1", "PUT"): {"alice": OK, "bob": OWNER},
        ("l2", "GET"): {"alice": SCOPE, "bob": SCOPE, "lins": SCOPE},
        ("l2", "PUT"): {"alice": SCOPE, "bob": SCOPE, "lins": SCOPE},
        ("l3", "GET"): {"alice": OK, "bob": OWNER},
        ("l3", "PUT"): {"alice": SCOPE, "bob": SCOPE},
    },
    "advisor": {
        ("l1", "GET"): {"alice": OK, "bob": ASSIGNED},
        ("l1", "PUT"): {"alice": SCOPE, "bob": SCOPE},
        ("l2", "GET"): {"alice": OK, "bob": ASSIGNED, "lins": OWNER},
        ("l2", "PUT"): {"alice": OK, "bob": ASSIGNED, "lins": OWNER},
        ("l3", "GET"): {"alice": OK, "bob": ASSIGNED},
        ("l3", "PUT"): {"alice": SCOPE, "bob": SCOPE},
    },
    "analyst": {
        (layer, verb): {"alice": SCOPE, "bob": SCOPE} for layer in ("l1", "l2", "l3") for verb in ("GET", "PUT")
    },
    "risk": {
        ("l1", "GET"): {"alice": OK, "bob": OK},
        ("l1", "PUT"): {"alice": SCOPE, "bob": SCOPE},
        ("l2", "GET"): {"alice": OK, "bob": OK, "lins": OK},
        ("l2", "PUT"): {"alice": SCOPE, "bob": SCOPE, "lins": SCOPE},
        ("l3", "GET"): {"alice": OK, "bob": OK},
        ("l3", "PUT"): {"alice": OK, "bob": OK},
    },
}
CASES = [
    (agent, layer, verb, whose, answer)
    for agent, rows in MATRIX.items()
    for (layer, verb), answers in rows.items()
    for whose, answer in answers.items()
]
BODY: dict[str, dict[str, Any]] = {"l1": {"language": "en"}, "l2": {"stage": "lead"}, "l3": {"risk_score": 5}}
ACTOR_TYPE = {"customer": "customer", "advisor": "agent", "analyst": "staff", "risk": "staff"}


@pytest.fixture
def _everything_exists() -> None:
    make_assignment(WEI, ALICE)
    make_assignment(LIN, BOB)
    for customer_id in (ALICE, BOB):
        CustomerProfileL1.objects.create(customer_id=customer_id)
        CustomerProfileL3.objects.create(
            customer_id=customer_id, payload={"restrictions": [{"code": "no_complex", "visibility": "public"}]}
        )
        for advisor_id in (WEI, LIN):
            CustomerProfileL2.objects.create(customer_id=customer_id, advisor_id=advisor_id)


@pytest.mark.usefixtures("_everything_exists")
@pytest.mark.parametrize(("agent", "layer", "verb", "whose", "answer"), CASES)
def test_the_matrix(agent: str, layer: str, verb: str, whose: str, answer: str) -> None:
    caller = make_agent(agent)
    before = AuditLog.objects.count()
    response = caller.call(verb, PATHS[layer, whose], BODY[layer] if verb == "PUT" else None)
    rows = list(AuditLog.objects.order_by("id")[before:])
    if answer == OK:
        assert response.status_code == 200, response.content
        assert [(row.event_type, row.decision) for row in rows] == (
            [("profile_write", "written")] if verb == "PUT" else []
        )
        return
    assert (response.status_code, response.json()["code"]) == (403, answer)
    assert response["Content-Type"] == "application/problem+json"
    [row] = rows
    assert (row.event_type, row.decision, row.code) == ("authz", "forbidden", answer)
    name = pseudonym_of("default", BOB if whose == "bob" else ALICE)
    actor = pseudonym_of("default", caller.actor_id) if agent == "customer" else caller.actor_id
    assert (row.agent, row.actor_type, row.actor_id, row.customer) == (agent, ACTOR_TYPE[agent], actor, name)
    assert row.input_summary["code"] == answer
    assert (row.input_summary["customer_id"], row.input_summary["target"], row.object_id) == (name,) * 3
    assert row.trace_id == response["X-Trace-Id"]
    for model in (CustomerProfileL1, CustomerProfileL2, CustomerProfileL3):
        assert not model.objects.exclude(version=1).exists()


@pytest.mark.usefixtures("_everything_exists")
def test_the_table_covers_every_agent_layer_and_verb() -> None:
    assert {(agent, layer, verb) for agent, layer, verb, _whose, _answer in CASES} == {
        (agent, layer, verb)
        for agent in ("customer", "advisor", "analyst", "risk")
        for layer in ("l1", "l2", "l3")
        for verb in ("GET", "PUT")
    }


@pytest.mark.usefixtures("_everything_exists")
def test_a_refusal_comes_before_the_body_is_read() -> None:
    response = make_agent("advisor").put(f"/profiles/l1/{ALICE}", b"{ this is not JSON")
    assert response.json()["code"] == SCOPE


@pytest.mark.usefixtures("_everything_exists")
def test_python_callers_meet_the_same_answer() -> None:
    for work in (
        lambda: selectors.read_l1(caller=make_caller("analyst"), customer_id=ALICE),
        lambda: services.write_l3(caller=make_caller("customer"), customer_id=ALICE, payload={}),
        lambda: services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=LIN, payload={}),
    ):
        before = AuditLog.objects.count()
        with pytest.raises(DomainError) as refusal:
            work()
        assert refusal.value.status == 403
        assert AuditLog.objects.count() == before + 1


def test_a_setting_grants_analysts_masked_reads_and_nothing_else(settings: Any) -> None:
    settings.ANALYST_READS_PROFILES = True
    CustomerProfileL1.objects.create(
        customer_id=ALICE, payload={"occupation": "teacher"}, core={"name": "王小明", "birth_date": "1950-01-01"}
    )
    CustomerProfileL3.objects.create(
        customer_id=ALICE,
        payload={"risk_score": 7, "reviewed_by": "officer-9", "restrictions": [
            {"code": "no_complex", "text": "ask Ms Lin", "visibility": "advisor"}]},
        internal={"aml_rating": "B"},
    )  # fmt: skip
    analyst = make_agent("analyst")
    l1 = analyst.get(f"/profiles/l1/{ALICE}").json()
    assert (l1["customer_id"], l1["name"], l1["birth_date"]) == ("cu***e", "王***", None)
    assert (l1["occupation"], l1["is_elderly"]) == (None, True)
    answer = analyst.get(f"/profiles/l3/{ALICE}")
    assert answer.json()["risk_score"] == 7
    for hidden in (ALICE, "officer-9", "Ms Lin", "aml"):
        assert hidden not in answer.content.decode()
    for method, path in (
        ("GET", f"/profiles/l2/{ALICE}/{WEI}"),
        ("PUT", f"/profiles/l1/{ALICE}"),
        ("PUT", f"/profiles/l3/{ALICE}"),
    ):
        assert analyst.call(method, path, {}).json()["code"] == SCOPE


def test_another_tenants_profile_is_not_there() -> None:
    CustomerProfileL1.objects.create(customer_id=ALICE)
    response = make_agent("risk", tenant="acme").get(f"/profiles/l1/{ALICE}")
    assert (response.status_code, response.json()["code"]) == (404, "PROFILE_NOT_FOUND")


def test_an_assignment_that_ended_refuses_the_next_request() -> None:
    CustomerProfileL1.objects.create(customer_id=ALICE)
    assignment = make_assignment()
    advisor = make_agent("advisor")
    assert advisor.get(f"/profiles/l1/{ALICE}").status_code == 200
    assignment.valid_to = assignment.valid_from
    assignment.save()
    assert advisor.get(f"/profiles/l1/{ALICE}").json()["code"] == ASSIGNED


# --- HTTP ---------------------------------------------------------------------------------------------------------


def test_etag_and_if_match() -> None:
    customer = make_agent("customer")
    made = customer.put(f"/profiles/l1/{ALICE}", {"language": "en"})
    assert (made.status_code, made["ETag"], made.json()["version"]) == (201, '"1"', 1)
    read = customer.get(f"/profiles/l1/{ALICE}")
    assert (read["ETag"], read.json()["language"], read.json()["version"]) == ('"1"', "en", 1)
    changed = customer.put(f"/profiles/l1/{ALICE}", {"language": "zh"}, **{"If-Match": read["ETag"]})
    assert (changed.status_code, changed["ETag"]) == (200, '"2"')
    stale = customer.put(f"/profiles/l1/{ALICE}", {"language": "fr"}, **{"If-Match": read["ETag"]})
    assert (stale.status_code, stale.json()["code"], stale.json()["current_version"]) == (409, "VERSION_CONFLICT", 2)
    again = customer.put(f"/profiles/l1/{ALICE}", {"language": "fr"}, **{"If-None-Match": "*"})
    assert (again.status_code, again.json()["code"]) == (409, "VERSION_CONFLICT")
    odd = customer.put(f"/profiles/l1/{ALICE}", {"language": "fr"}, **{"If-Match": "latest"})
    assert (odd.status_code, odd.json()["code"]) == (422, "INVALID_REQUEST")
    assert customer.get(f"/profiles/l1/{ALICE}").json()["language"] == "zh"


def test_the_assessment_is_refused_by_name_over_http() -> None:
    response = make_agent("customer").put(f"/profiles/l1/{ALICE}", {"c_level": "C5"})
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")
    assert "c_level" in response.json()["detail"]


@pytest.mark.parametrize("layer", ["l1", "l2", "l3"])
@pytest.mark.parametrize("bad", ["a:b", "a*", "x" * 300, "a%20", "%E5%AE%A2", "a%0A"])
@pytest.mark.parametrize("verb", ["GET", "PUT"])
def test_an_id_that_is_none_is_a_422_that_says_so(layer: str, bad: str, verb: str) -> None:
    agent = make_agent("risk")
    before = AuditLog.objects.count()
    path = f"/profiles/{layer}/{bad}" + ("/adv-1" if layer == "l2" else "")
    response = agent.call(verb, path, {} if verb == "PUT" else None)
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_ID")
    assert "A-Z a-z 0-9" in response.json()["detail"]
    assert AuditLog.objects.count() == before


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"", 422, "INVALID_REQUEST"), (b"{", 400, "INVALID_JSON"), (b"\xff{}", 400, "INVALID_JSON"),
     (b"[]", 422, "INVALID_REQUEST"), (b"null", 422, "INVALID_REQUEST"), (b'"x"', 422, "INVALID_REQUEST"),
     (b'{"language": NaN}', 422, "INVALID_REQUEST"), (b'{"payload": {}}', 422, "INVALID_REQUEST"),
     (b'{"occupation": "\\ud800"}', 422, "INVALID_REQUEST")],
)  # fmt: skip
def test_a_body_that_is_no_profile(body: bytes, status: int, code: str) -> None:
    response = make_agent("customer").put(f"/profiles/l1/{ALICE}", body)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not CustomerProfileL1.objects.exists()


def test_the_api_page_shows_what_a_writer_may_send() -> None:
    from django.test import Client

    schema = Client().get("/api/v1/openapi.json").json()
    body = schema["paths"]["/api/v1/profiles/l1/{customer_id}"]["put"]["requestBody"]
    assert "occupation" in body["content"]["application/json"]["schema"]["properties"]
    assert "c_level" not in body["content"]["application/json"]["schema"]["properties"]


# --- field by field -----------------------------------------------------------------------------------------------

HEAD = "customer_id version updated_at schema_version"
L1_FIELDS = f"""{HEAD} name gender birth_date id_no_masked phone_masked investor_type civil_capacity c_level is_lowest
    assessed_at valid_until assessment_id occupation income_band net_assets_band experience_years complex_experience
    goals horizon_months liquidity_needs max_drawdown_pct preferences do_not_contact language consents
    is_elderly assessment_status"""
L2_FIELDS = f"""{HEAD} advisor_id stage notes needs household next_steps last_contact_at channel explanations_given
    asset_snapshot snapshot_at core_as_of"""
L3_SHARED = f"{HEAD} risk_score risk_level flags restrictions valid_until reviewed_by"
FIELDS = {
    ("customer", "l1"): L1_FIELDS,
    ("customer", "l3"): """customer_id version assessment_status assessment_valid_until max_product_risk_level
        restrictions required_steps as_of""",
    ("advisor", "l1"): L1_FIELDS,
    ("advisor", "l2"): L2_FIELDS,
    ("advisor", "l3"): L3_SHARED,
    ("risk", "l1"): L1_FIELDS,
    ("risk", "l2"): L2_FIELDS,
    ("risk", "l3"): f"{L3_SHARED} aml_rating reasons open_alerts",
    ("analyst", "l1"): L1_FIELDS,
    ("analyst", "l3"): L3_SHARED,
}
# What an analyst, where the setting lets one read, is not told although it is there.
HIDDEN_FROM_ANALYSTS = {"birth_date", "id_no_masked", "phone_masked", "assessment_id", "reviewed_by", "preferences"}


@pytest.mark.usefixtures("_everything_exists")
@pytest.mark.parametrize(("agent", "layer"), FIELDS)
def test_each_reader_is_given_exactly_these_fields_now_and_as_of(agent: str, layer: str, settings: Any) -> None:
    settings.ANALYST_READS_PROFILES = True
    reader = make_agent(agent)
    now_given = reader.get(PATHS[layer, "alice"])
    assert set(now_given.json()) == set(FIELDS[agent, layer].split())
    past = reader.get(f"{PATHS[layer, 'alice']}?version=1")
    assert past.content == now_given.content
    changed = reader.get(f"{PATHS[layer, 'alice']}/versions").json()["items"]
    assert {name for item in changed for name in item["changed"]} <= set(FIELDS[agent, layer].split())


def test_what_is_hidden_from_analysts_is_not_in_the_history_either(settings: Any) -> None:
    settings.ANALYST_READS_PROFILES = True
    first = {"name": "王小明", "birth_date": "1950-01-01", "id_no_masked": "1**", "assessment_id": "a-1"}
    CustomerProfileL1.objects.create(customer_id=ALICE, core=first)
    CustomerProfileL1.objects.update(
        core={**first, "birth_date": "1951-01-01", "id_no_masked": "2**", "phone_masked": "1*", "assessment_id": "a-2"},
        payload={
            "schema_version": 1,
            "preferences": {"like": ["what Ms Lin has"]},
            "consents": [{"purpose": "call 138", "granted_at": "2026-01-01T00:00:00.000000Z"}],
        },
    )
    analyst = make_agent("analyst")
    view = analyst.get(f"/profiles/l1/{ALICE}")
    assert {name for name in HIDDEN_FROM_ANALYSTS & set(view.json()) if view.json()[name] is not None} == set()
    page = analyst.get(f"/profiles/l1/{ALICE}/versions")
    assert page.json()["items"][0]["changed"] == ["consents"]
    for answer in (view, page, analyst.get(f"/profiles/l1/{ALICE}?version=2")):
        for hidden in (ALICE, "王小明", "1950", "Ms Lin", "call 138", "a-2"):
            assert hidden not in answer.content.decode()
