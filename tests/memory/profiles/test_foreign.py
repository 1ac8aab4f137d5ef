"""What others have written, past the services into MySQL or past us into Redis: nothing of it is shown or breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from config.base import redis as base_redis
from config.base.keys import prefixed
from memory.profiles import cache, documents, history, selectors, services
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Layer
from memory.profiles.schemas import L1Own, L3Shared
from memory.profiles.shaping import is_document, shaped
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
    make_agent,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

FLAG = {"code": "p", "visibility": "public"}
RULE = {"code": "no_new_purchase", "visibility": "public"}
SECRET = "zq7secret"


def written(name: str, key: str) -> str:
    return str(base_redis.client_for(settings.REDIS_URL).get(prefixed(key)) or name)


def views() -> list[Any]:
    """Each reader's answer over HTTP: the three layers, now, in the past and as a list of versions."""
    answers = []
    for agent in ("customer", "advisor", "risk"):
        one = make_agent(agent)
        for path in (f"/profiles/l1/{ALICE}", f"/profiles/l2/{ALICE}/{WEI}", f"/profiles/l3/{ALICE}"):
            for more in ("", "", "?version=1", "/versions"):
                answer = one.get(path + more)
                assert answer.status_code in (200, 403, 404), (agent, path, more, answer.content)
                answers.append((agent, path, answer))
    return answers


def test_what_the_schema_does_not_know_stays_behind() -> None:
    make_core_customer()
    make_assignment()
    CustomerProfileL1.objects.create(
        customer_id=ALICE,
        payload={"occupation": "cook", "Occupation": SECRET, "goals": [{"kind": "x", "note": SECRET}]},
    )
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI, payload={"stage": "a", "diagnosis": SECRET})
    shown = {"risk_score": 1, "flags": [{**FLAG, "reasons": [SECRET]}], "restrictions": [{**RULE, "why": SECRET}]}
    CustomerProfileL3.objects.create(
        customer_id=ALICE, payload={**shown, "Aml_Rating": SECRET, "notes": {"aml_rating": SECRET}}
    )
    for agent, path, answer in views():
        if agent != "risk" or "l3" not in path:
            assert SECRET not in answer.content.decode(), (agent, path)
    for layer in ("l1", "l3"):
        assert SECRET not in written("", f"profile:{layer}:{ALICE}") != ""
    l3 = selectors.read_l3(caller=make_caller("advisor"), customer_id=ALICE)
    assert (l3["flags"], l3["restrictions"]) == ([FLAG], [RULE])


@pytest.mark.parametrize(
    "payload",
    [
        {"flags": 5, "restrictions": "x"},
        {"restrictions": [{}, None, 5, {"visibility": "public"}, {**RULE, "code": "max_risk_level"}, RULE]},
        {"restrictions": [{**RULE, "since": "xx"}, {**RULE, "until": 5}, {**RULE, "value": 7}, RULE]},
        {"flags": {"code": "p"}, "restrictions": [[RULE], RULE], "valid_until": [], "schema_version": "2"},
        [], "text", None, 5,
    ],
)  # fmt: skip
def test_a_malformed_row_is_shown_as_far_as_it_goes(payload: Any) -> None:
    make_core_customer()
    make_assignment()
    CustomerProfileL1.objects.create(customer_id=ALICE, payload={"goals": 7, "occupation": "cook"})
    CustomerProfileL1.objects.update(core={"birth_date": "x", "c_level": 3, "valid_until": "never", "name": "王小明"})
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI, payload=payload or [], asset_snapshot=[1])
    CustomerProfileL3.objects.create(customer_id=ALICE, payload=payload if payload is not None else [], internal=[])
    views()
    if isinstance(payload, dict) and payload["restrictions"] != "x":
        part = selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)
        assert [entry["code"] for entry in part["restrictions"]] == ["no_new_purchase"]
    # A write mends it.
    services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload={"risk_score": 2})
    assert selectors.read_l3(caller=make_caller("risk"), customer_id=ALICE)["risk_score"] == 2


def test_what_is_well_formed_comes_back_as_it_is_spelled() -> None:
    for schema, fields in (
        (L1Own, {"goals": [{"kind": "x", "amount": "5"}], "max_drawdown_pct": 10.0, "horizon_months": 3}),
        (L3Shared, {"schema_version": 1, "flags": [FLAG], "valid_until": "2027-01-01", "restrictions": [RULE]}),
        (L3Shared, {"valid_until": "2027-01-01T00:00:00.000000Z"}),
    ):
        assert shaped(schema, fields) == fields


DEEP = "[" * 100_000
DOCUMENTS = {
    "list": None, "garbage": "xx", "a number": "5", "null": "null", "deep": DEEP, "empty": "", "bytes": b"\xff\xfe",
    "deep inside": '{{"customer_id":"{}","version":1,"goals":{}}}'.format(ALICE, DEEP + "]" * 100_000),
    "another's": {"customer_id": "cust-other"}, "no version": {"version": None}, "NaN": {"version": float("nan")},
    "version 0": {"version": 0}, "a text as version": {"version": "1"}, "true": {"version": True},
    "no instant": {"updated_at": 5}, "an unknown name": {"aml_rating": "high"},
    "fields": {"restrictions": [{}], "flags": 5}, "a level": {"c_level": "C9", "birth_date": 7},
    "risk's entry": {"flags": [{"code": "x", "visibility": "risk"}]}, "half a pair": '{"customer_id":"\\ud800"}',
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_others_wrote_into_the_cache_is_removed_and_mysql_read(name: str) -> None:
    make_core_customer()
    make_assignment()
    CustomerProfileL1.objects.create(customer_id=ALICE, payload={"occupation": "cook"})
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI, payload={"stage": "met"})
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 7})
    client, value = base_redis.client_for(settings.REDIS_URL), DOCUMENTS[name]
    for layer, path in (("l1", ALICE), ("l2", f"{ALICE}:{WEI}"), ("l3", ALICE)):
        advisor = make_agent("advisor")
        url = f"/profiles/{layer}/{path.replace(':', '/')}"
        good = [advisor.get(url).content for _ in range(2)][1]  # the first look at l1 asks the core
        key = prefixed(f"profile:{layer}:{path}")
        ours = json.loads(client.get(key) or "{}")
        assert is_document(layer, ours)
        client.delete(key)
        if value is None:
            client.rpush(key, "x")
        elif isinstance(value, dict):
            if is_document(layer, {**ours, **value}):
                value = {"foreign": 1}
            client.set(key, json.dumps({**ours, **value}))
        else:
            client.set(key, value)
        answer = advisor.get(url)
        assert (answer.status_code, answer.content) == (200, good)
        assert client.type(key) in ("none", "string")
        assert client.type(key) == "none" or json.loads(client.get(key) or "") == ours
        client.delete(key)


def test_what_we_wrote_ourselves_is_not_looked_at_field_by_field_and_one_letter_of_others_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look costs more than the rest of a read. What is ours is known by the checksum that lies beside it."""
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 7, "restrictions": [RULE]})
    reader, slot = make_caller("customer"), cache.Slot("default", "l3", ALICE)
    good = selectors.read_l3(caller=reader, customer_id=ALICE)
    looked: list[Any] = []

    def look(*of: Any) -> bool:
        looked.append(of)
        return is_document(*of)

    monkeypatch.setattr(cache, "is_document", look)
    assert selectors.read_l3(caller=reader, customer_id=ALICE) == good
    assert looked == []

    client, key = base_redis.client_for(settings.REDIS_URL), slot.names[0]
    ours = str(client.get(key))
    for spoilt in (ours.replace('"public"', '"risk"'), ours.replace(ALICE, "cust-other"), ours[:-1], ours + " x"):
        client.set(key, spoilt, keepttl=True)  # with the mark of what we wrote still beside it
        assert selectors.read_l3(caller=reader, customer_id=ALICE) == good
        assert client.get(key) is None
        assert selectors.read_l3(caller=reader, customer_id=ALICE) == good
        assert client.get(key) == ours
    assert len(looked) >= 2

    # Without the mark (of a program before it, or lost) a value of the right shape is taken as ever.
    client.delete(slot.names[1])
    assert cache.read([slot])[0].part is cache.Part.HIT


@pytest.mark.parametrize("name", ["bytes", "deep", "minimal", "half", "list"])
def test_what_others_wrote_in_a_snapshots_place(name: str) -> None:
    from memory.profiles import leased

    make_core_customer()
    make_assignment()
    advisor, client = make_agent("advisor"), leased.client()
    url, key = f"/snapshots/{WEI}/{ALICE}", prefixed(f"cache:advisor:snapshot:{WEI}:{ALICE}")
    good = advisor.get(url).json()
    ids = f'"schema_version":1,"advisor_id":"{WEI}","customer_id":"{ALICE}"'
    client.delete(key)
    values: dict[str, Any] = {
        "bytes": b"\xff\xfe", "deep": "[" * 100_000, "minimal": f"{{{ids}}}",
        "half": f'{{{ids},"assessment":{{}},"suitability_flags":{{"count":0}},"snapshot_at":"x"}}',
    }  # fmt: skip
    if name == "list":
        client.rpush(key, "x")
    else:
        client.set(key, values[name])
    answer = advisor.get(url)
    assert (answer.status_code, answer.json()["total"]) == (200, good["total"])
    assert client.type(key) == "none" or client.get(key) not in values.values()


def test_a_hash_is_of_what_was_written_and_a_later_schema_makes_no_version_look_tampered_with() -> None:
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 1, "of_a_schema_to_come": SECRET})
    of = history.Of("default", Layer.L3, ALICE)
    assert documents.l3_document(history.row_of(history.numbered(of, 1))).keys() >= {"risk_score"}  # type: ignore[arg-type]


def test_an_analyst_is_shown_nothing_that_anybody_typed(settings: Any) -> None:
    settings.ANALYST_READS_PROFILES = True
    make_core_customer()
    typed = "谢华13800138000"
    services.write_l1(
        caller=make_caller("customer"),
        customer_id=ALICE,
        payload={
            "occupation": typed, "income_band": typed, "net_assets_band": typed, "language": "xie-hua",
            "horizon_months": 6,
            "goals": [{"kind": typed, "amount": "5.00", "date": "2030-01-01", "priority": 1}],
            "liquidity_needs": [{"amount": "1.00", "by": "2027-01-01"}], "preferences": {"like": [typed]},
            "do_not_contact": {"channels": [typed], "hours": typed, "until": "2027-01-01"},
            "consents": [{"purpose": typed, "granted_at": "2026-01-01T00:00:00Z"}],
        },
    )  # fmt: skip
    flags = [{"code": "xie.hua", "since": "2026-01-01", "visibility": "public"}]
    services.write_l3(
        caller=make_caller("risk"),
        customer_id=ALICE,
        payload={"risk_score": 5, "flags": flags, "reviewed_by": "xie.hua"},
    )
    analyst = make_agent("analyst")
    for more in ("", "?version=1", "/versions"):
        for layer in ("l1", "l3"):
            text = analyst.get(f"/profiles/{layer}/{ALICE}{more}").content.decode()
            assert "谢华" not in text
            assert "xie" not in text
            assert ALICE not in text
    l1 = selectors.read_l1(caller=make_caller("analyst"), customer_id=ALICE)
    assert l1["goals"] == [{"kind": None, "amount": "5.00", "date": "2030-01-01", "priority": 1}]
    assert l1["do_not_contact"] == {"channels": None, "hours": None, "until": "2027-01-01"}
    assert (l1["horizon_months"], l1["occupation"], l1["is_elderly"]) == (6, None, True)
    l3 = selectors.read_l3(caller=make_caller("analyst"), customer_id=ALICE)
    assert (l3["risk_score"], l3["flags"]) == (5, [{"code": None, "since": "2026-01-01", "visibility": "public"}])
