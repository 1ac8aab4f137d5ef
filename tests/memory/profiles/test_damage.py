"""Whatever stands under a name of ours, of whichever type: every route answers, and what it stood for is made again.

Other teams' programs write to these servers too. A spoilt key costs a look at MySQL or the core, never a failed call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client

from config.base.keys import Key, registered
from memory.core.window import CoreUnavailable
from memory.profiles import keys as profile_keys
from memory.profiles import leased
from memory.profiles.answers import keys as answer_keys
from memory.profiles.answers import services as answers
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3
from memory.profiles.snapshots import keys as snapshot_keys
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
    make_agent,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

ASKED: dict[str, Any] = {"question": "什么是 R2 基金？", "model": "m-1", "knowledge_version": "2026-11"}
PAIR = {"advisor_id": WEI, "customer_id": ALICE}
DEEP = "[" * 50_000
LONG = "9" * 5000


def hashes() -> list[str]:
    """Of a question about the customer, and in public."""
    asked = answers._asked(make_caller("advisor"), **ASKED, customer_id=ALICE, scope=None)
    return [asked.hash_in(ALICE), asked.hash_in("")]


# A name of each key that these rooms declare.
NAMES: dict[str, Callable[[], str]] = {
    "L1": lambda: profile_keys.L1(customer_id=ALICE),
    "L1_GENERATION": lambda: profile_keys.L1_GENERATION(customer_id=ALICE),
    "L2": lambda: profile_keys.L2(**PAIR),
    "L2_GENERATION": lambda: profile_keys.L2_GENERATION(**PAIR),
    "L3": lambda: profile_keys.L3(customer_id=ALICE),
    "L3_GENERATION": lambda: profile_keys.L3_GENERATION(customer_id=ALICE),
    "SNAPSHOT": lambda: snapshot_keys.SNAPSHOT(**PAIR),
    "SNAPSHOT_LEASE": lambda: snapshot_keys.SNAPSHOT_LEASE(**PAIR),
    "SNAPSHOT_SEEN": lambda: snapshot_keys.SNAPSHOT_SEEN(**PAIR),
    "ANSWER": lambda: answer_keys.ANSWER("default", query_hash=hashes()[0]),
    "ANSWER of all": lambda: answer_keys.ANSWER("default", query_hash=hashes()[1]),
    "ANSWER_LEASE": lambda: answer_keys.ANSWER_LEASE("default", query_hash=hashes()[0]),
    "EPOCH": lambda: answer_keys.EPOCH("default", agent="advisor"),
    "LOOKUPS": lambda: answer_keys.LOOKUPS(),
}
DAMAGES: dict[str, Any] = {
    "list": ["x"], "set": {"x"}, "zset": {"x": 1.0}, "hash": {b"x": b"y"}, "stream": None, "empty": b"", "word": b"x",
    "two words": b"x y", "none for ever": b"x none", "no number": b"x nan", "bytes": b"\xff\xfe \xff",
    "deep": DEEP.encode(),
    "number": b"1", "long number": LONG.encode(), "null": b"null", "object": b"{}", "NaN": b'{"version": NaN}',
    "half a pair": b'{"customer_id": "\\ud800"}', "held for ever": b"!",
    "odd fields": {
        b"junk": b"1", b"a:b:c:d": b"1", b"default:advisor:hit": b"x", b"default:advisor:miss": LONG.encode(),
        b"default:advisor:wait": b"9223372036854775807", b"default:nobody:hit": b"1", b"default:advisor:odd": b"1",
        b"\xff:advisor:hit": b"1", b"default:advisor:\xff": b"\xff", b"": b"", b"default:risk:hit": b"-5",
    },
}  # fmt: skip


def raw() -> redis.Redis:
    return redis.Redis.from_url(django_settings.CACHE_REDIS_URL)


def damage(client: redis.Redis, name: str, value: Any) -> None:
    client.delete(name)
    if isinstance(value, bytes):
        client.set(name, value)
    elif isinstance(value, list):
        client.rpush(name, *value)
    elif isinstance(value, set):
        client.sadd(name, *value)
    elif value is None:
        client.xadd(name, {"x": "y"})
    elif all(isinstance(number, float) for number in value.values()):
        client.zadd(name, value)
    else:
        client.hset(name, mapping=value)


def servers(name: str) -> Iterator[redis.Redis]:
    kind = name.partition("_")[0]
    url = django_settings.REDIS_URL if kind in ("L1", "L2", "L3") else django_settings.CACHE_REDIS_URL
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def cast(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everybody's agents, and something to read in each layer."""
    monkeypatch.setattr("memory.profiles.snapshots.selectors.WAIT_SECONDS", 0.05)
    monkeypatch.setattr("memory.profiles.selectors.PATIENCE", 0.05)
    make_core_customer()
    make_assignment()
    CustomerProfileL1.objects.create(customer_id=ALICE, payload={"occupation": "cook"})
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI, payload={"stage": "met"})
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 7})
    return {agent: make_agent(agent) for agent in ("customer", "advisor", "risk")}


READS = [
    (agent, path)
    for agent in ("customer", "advisor", "risk")
    for path in (f"/profiles/l1/{ALICE}", f"/profiles/l2/{ALICE}/{WEI}", f"/profiles/l3/{ALICE}")
] + [("advisor", f"/profiles/l1/{ALICE}/versions"), ("advisor", f"/snapshots/{WEI}/{ALICE}")]


def reads(cast: dict[str, Any], name: str = "") -> dict[tuple[str, str], tuple[int, Any]]:
    """What everybody is answered; of one key: what is made of it."""
    found = {}
    part = {"L": f"/{name[:2].lower()}/", "S": "/snapshots/"}.get(name[:1], "/")
    for agent, path in READS:
        if part not in path:
            continue
        answer = cast[agent].get(path)
        body = {name: value for name, value in answer.json().items() if name not in ("age_seconds", "trace_id")}
        found[agent, path] = (answer.status_code, body)
    return found


def test_every_key_of_these_rooms_is_looked_at() -> None:
    declared = {
        name
        for module in (profile_keys, snapshot_keys, answer_keys)
        for name, value in vars(module).items()
        if isinstance(value, Key)
    }
    assert {name.partition(" ")[0] for name in NAMES} == declared
    theirs = [key for key in registered() if key.writers.startswith("memory.profiles")]
    assert len(theirs) == len(declared)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("ANSWER", "EPOCH", "LOOKUPS"))])
def test_whatever_stands_in_a_profiles_or_snapshots_place(cast: dict[str, Any], name: str) -> None:
    reads(cast)
    good = reads(cast, name)
    for kind, value in DAMAGES.items():
        for client in servers(name):
            key = NAMES[name]()
            damage(client, key, value)
            if name.endswith(("_GENERATION", "_LEASE")):  # asked for after a miss only
                client.delete(NAMES[name.removesuffix("_GENERATION").removesuffix("_LEASE")]())
            assert reads(cast, name) == good, kind
            if kind not in ("list", "bytes", "empty"):
                continue
            assert reads(cast, name) == good, kind
            damage(client, key, value)
            for agent, path, body in (
                ("customer", f"/profiles/l1/{ALICE}", {"occupation": "cook"}),
                ("advisor", f"/profiles/l2/{ALICE}/{WEI}", {"stage": "met"}),
                ("risk", f"/profiles/l3/{ALICE}", {"risk_score": 7}),
            ):
                answer = cast[agent].put(path, body)
                assert answer.status_code == 200, (kind, answer.content)
            good = reads(cast, name)


def test_a_mark_of_somebody_elses_lets_nobody_read_while_the_core_is_away(
    cast: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor, url = cast["advisor"], f"/snapshots/{WEI}/{ALICE}"
    assert advisor.get(url).status_code == 200

    def away(*args: Any, **named: Any) -> Any:
        raise CoreUnavailable("away")

    monkeypatch.setattr("memory.profiles.snapshots.policies.authorize", away)
    for client in servers("SNAPSHOT_SEEN"):
        for kind, value in DAMAGES.items():
            damage(client, NAMES["SNAPSHOT_SEEN"](), value)
            answer = advisor.get(url)
            if kind != "number":  # `1` is what we write
                assert answer.status_code == 503, (kind, answer.content)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("ANSWER", "EPOCH", "LOOKUPS"))])
def test_whatever_stands_in_an_answers_place(cast: dict[str, Any], name: str) -> None:
    advisor, lookup, client = cast["advisor"], {**ASKED, "customer_id": ALICE}, raw()
    kept = {**lookup, "answer": "中低风险。", "made_from": "customer"}
    for kind, value in DAMAGES.items():
        for during in (False, True):
            client.delete(*(make() for key, make in NAMES.items() if key.startswith(("ANSWER", "EPOCH", "LOOKUPS"))))
            if during:  # damaged between the lookup and the answer
                lease = advisor.call("POST", "/answers/lookup", lookup).json()["lease"]
                damage(client, NAMES[name](), value)
            else:
                damage(client, NAMES[name](), value)
                lease = advisor.call("POST", "/answers/lookup", lookup).json()["lease"]
                assert lease, kind
            done = advisor.put("/answers", {**kept, "lease": lease})
            assert done.status_code == 200, (kind, done.content)
            assert done.json()["kept"] is (not during or name not in ("EPOCH", "ANSWER_LEASE")), kind
            # At the latest once the lease is over there is an answer again.
            client.delete(NAMES["ANSWER_LEASE"]())
            missed = advisor.call("POST", "/answers/lookup", lookup)
            assert missed.status_code == 200, (kind, missed.content)
            if not missed.json()["hit"]:
                assert advisor.put("/answers", {**kept, "lease": missed.json()["lease"]}).json()["kept"], kind
            found = advisor.call("POST", "/answers/lookup", lookup)
            assert found.json()["answer"] == "中低风险。", kind
            assert Client().get("/metrics").status_code == 200
            counts = answers.lookups()[("default", "advisor")]
            assert counts["hit"] >= 1
            assert sum(counts.values()) < 10, kind


@pytest.mark.parametrize(
    "spoilt",
    [
        {"made_at": "2026-11-30T00:00:00"}, {"made_at": "0001-01-01T00:00:00+14:00"}, {"made_at": 5}, {"made_at": None},
        {"answer": "\ud800"}, {"answer": ""}, {"answer": 5}, {"answer": None}, {"answer": "x" * (256 * 1024 + 1)},
        {"scope": "both"}, {"scope": []}, {"about": 1}, {"agent": "risk"}, {"for": "x"}, {"scope": "public"}, None,
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_that_is_nearly_one_is_a_miss(cast: dict[str, Any], spoilt: dict[str, Any] | None) -> None:
    advisor, lookup, client = cast["advisor"], {**ASKED, "customer_id": ALICE}, raw()
    lease = advisor.call("POST", "/answers/lookup", lookup).json()["lease"]
    body = {**lookup, "answer": "中低风险。", "made_from": "customer", "lease": lease}
    assert advisor.put("/answers", body).json() == {"kept": True}
    value = client.get(NAMES["ANSWER"]())
    epoch = client.get(NAMES["EPOCH"]())
    assert value and epoch  # noqa: PT018
    if spoilt is None:
        client.set(NAMES["ANSWER"](), value.removesuffix(b"}") + b',"x":"\xff"}')
    else:
        client.set(NAMES["ANSWER"](), json.dumps({**json.loads(value), **spoilt}, separators=(",", ":")))
    missed = advisor.call("POST", "/answers/lookup", lookup)
    assert (missed.status_code, missed.json()["hit"]) == (200, False), missed.content
    assert client.exists(NAMES["ANSWER"]()) == 0
    assert client.get(NAMES["EPOCH"]()) == epoch  # the others' answers are none the worse
    assert advisor.call("POST", "/answers/lookup", lookup).json()["lease"]


ODD: list[Any] = [
    None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "\x00", "0001-01-01", "9999-12-31",
    "0001-01-01T00:00:00.000000+14:00", "9999-12-31T23:59:59.999999-14:00", "0001-01-01T00:00:00", [], [None], ["x"],
    {}, {"x": []}, [{}], [[]], {"\ud800": 1}, {"x": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("name", ["L1", "L2", "L3", "SNAPSHOT"])
def test_a_document_with_one_odd_field_is_answered_or_made_again(cast: dict[str, Any], name: str) -> None:
    reads(cast)
    reads(cast)
    path = next(path for agent, path in READS if agent == "advisor" and f"/{name.lower()}" in path)
    for client in servers(name):
        whole = client.get(NAMES[name]())
        assert whole
        document = json.loads(whole)
        places = [("", field) for field in [*document, "odd"]]
        for field, value in document.items():
            if isinstance(value, dict):
                places += [(field, one) for one in [*value, "odd"]]
        for number, (outer, inner) in enumerate(places):
            for value in ODD[number % 5 :: 5]:  # each with some fields
                spoilt = json.loads(whole)
                (spoilt[outer] if outer else spoilt)[inner] = value
                client.set(NAMES[name](), json.dumps(spoilt))
                answer = cast["advisor"].get(path)
                assert answer.status_code == 200, (outer, inner, value, answer.content)


def test_a_lease_of_somebody_elses_ends_when_ours_would(cast: dict[str, Any]) -> None:
    advisor = cast["advisor"]
    for client in servers("SNAPSHOT"):
        client.set(NAMES["SNAPSHOT_LEASE"](), "x", ex=10**8)
        assert advisor.get(f"/snapshots/{WEI}/{ALICE}").status_code == 200
        assert client.ttl(NAMES["SNAPSHOT_LEASE"]()) <= snapshot_keys.LEASE_SECONDS
        client.set(NAMES["EPOCH"](), "abc", ex=100)
        client.set(NAMES["ANSWER_LEASE"](), "x.abc", ex=10**8)
        found = advisor.call("POST", "/answers/lookup", {**ASKED, "customer_id": ALICE}).json()
        assert (found["lease"], found["retry_after"]) == (None, 0.5)
        assert client.ttl(NAMES["ANSWER_LEASE"]()) <= answer_keys.LEASE_SECONDS


def test_a_lease_that_is_spoilt_while_its_holder_works_keeps_nothing(cast: dict[str, Any]) -> None:
    place = leased.Place(NAMES["SNAPSHOT"](), NAMES["SNAPSHOT_LEASE"]())
    for client in servers("SNAPSHOT"):
        for kind, value in DAMAGES.items():
            client.delete(place.value, place.lease)
            token = leased.look(place, lease_seconds=5).token
            damage(client, place.lease, value)
            assert leased.keep(place, token, "x", seconds=5) is False, kind
