"""A write with an `Idempotency-Key`: done once, answered alike, whoever dies or goes away meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from config.api import api as real_api
from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.idempotency import Answer, Claim, begin, digest_of, keeper, records
from guard.idempotency.keys import IDEM
from memory.sessions import services
from memory.sessions.models import AgentMessage
from tests.counting import counted_round_trips
from tests.guard.idempotency import (
    ALICE,
    DIGEST,
    Agent,
    Slow,
    code_of,
    kept,
    make_agent,
    new_key,
    replayed,
    sessions_made,
)
from tests.memory.sessions.helpers import empty_redis, make_session
from tests.stack import until
from tests.threads import Threads

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def short_lease(settings: Any) -> float:
    settings.IDEMPOTENCY_LEASE_SECONDS = 0.6
    return 0.6


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many at once on a machine that has other work too: there Redis may be slower than callers wait, and who
    asks then gets 503, which is another test's."""
    monkeypatch.setattr(records, "TIMEOUT", 5.0)
    monkeypatch.setattr(records, "PATIENCE", 5.0)


# --- the same again ---------------------------------------------------------------------------------------------------


def test_the_same_request_is_done_once_and_answered_alike() -> None:
    alice, key = make_agent(), new_key()
    first = alice.post("/sessions", {"customer_id": "alice"}, once=key)
    again = alice.post("/sessions", {"customer_id": "alice"}, once=key)
    assert (first.status_code, replayed(first)) == (201, False)
    assert (again.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert again["Content-Type"] == first["Content-Type"]
    assert again["X-Trace-Id"] != first["X-Trace-Id"]
    assert sessions_made() == 1
    name = IDEM(actor_id="alice", key=key)
    assert name.endswith(f":guard:idem:alice:{key}")
    assert 86_000 < base_redis.state().ttl(name) <= 86_400
    other = alice.post("/sessions", {"customer_id": "alice"}, once=new_key())
    assert other.json()["session_id"] != first.json()["session_id"]


def test_the_headers_that_belong_to_an_answer_come_again() -> None:
    alice, session = make_agent(), make_session(ALICE)
    first = alice.call("PATCH", f"/sessions/{session}/context", {"intent": "buy"}, once="k")
    again = alice.call("PATCH", f"/sessions/{session}/context", {"intent": "buy"}, once="k")
    assert (again.status_code, again["ETag"], again.content) == (200, first["ETag"], first.content)
    gone = [alice.call("DELETE", f"/sessions/{session}", once="d") for _ in range(2)]
    assert [(r.status_code, r.content, replayed(r)) for r in gone] == [(204, b"", False), (204, b"", True)]


def test_what_counts_as_the_same_request() -> None:
    alice, session = make_agent(), make_session(ALICE)
    where = f"/sessions/{session}/context"
    first = alice.call("PATCH", where, '{"intent": "buy", "step": 1}', once="k")
    spelt = alice.call("PATCH", where, '{ "step":1,\n"intent":"b\\u0075y"}', once="k")
    assert (spelt.content, replayed(spelt)) == (first.content, True)
    reused = (422, "IDEMPOTENCY_KEY_REUSED")
    assert code_of(alice.call("PATCH", where, {"intent": "sell", "step": 1}, once="k")) == reused
    assert (
        code_of(alice.call("PATCH", where, {"intent": "buy", "step": 1}, once="k", **{"If-Match": '"1-1"'})) == reused
    )
    assert code_of(alice.post("/sessions", {}, once="k")) == reused
    assert code_of(alice.call("DELETE", f"/sessions/{session}", once="k")) == reused
    assert alice.call("GET", where, once="k").json()["intent"] == "buy"  # reads know no key


@pytest.mark.parametrize("key", ["", "a b", "a:b", "a" * 65, '"quoted"', "é"])
def test_odd_keys_are_refused(key: str) -> None:
    assert code_of(make_agent().post("/sessions", {}, once=key)) == (422, "INVALID_ID")
    assert sessions_made() == 0


def test_actors_agents_and_tenants_with_the_same_key_do_not_meet() -> None:
    agents = [
        make_agent("advisor", "wei"),
        make_agent("advisor", "li"),
        make_agent("risk", "wei"),
        make_agent("advisor", "wei", tenant="acme"),
    ]
    for round_trip in range(2):
        answers = [agent.post("/sessions", {"customer_id": f"c-{n}"}, once="k") for n, agent in enumerate(agents)]
        assert [(r.status_code, replayed(r)) for r in answers] == [(201, bool(round_trip))] * 4
    assert sessions_made() == 4
    # One name of a key for two agents of an actor; what is the one's does not end the other's.
    assert {field.split(":")[0] for field in kept("k", "wei")} == {"advisor", "risk"}


def test_messages_with_entry_ids_and_a_key() -> None:
    alice, session = make_agent(), make_session(ALICE)
    body = {"messages": [{"role": "user", "content": "hello", "entry_id": "e-1"}], "durability": "sync"}
    first = alice.post(f"/sessions/{session}/messages", body, once="k")
    again = alice.post(f"/sessions/{session}/messages", body, once="k")
    otherwise = alice.post(f"/sessions/{session}/messages", body, once="another")
    assert first.json() == again.json() == otherwise.json()
    assert [replayed(r) for r in (first, again, otherwise)] == [False, True, False]
    assert AgentMessage.objects.count() == 1


def layers(view: Any) -> Iterator[str]:
    """Names of what is wrapped around a route, from outside."""
    while view is not None:
        yield view.__code__.co_name
        view = getattr(view, "__wrapped__", None)


def test_every_writing_route_has_the_hook() -> None:
    writing = [
        (operation, where)
        for router in real_api._get_bound_routers()
        for where, view in router.path_operations.items()
        for operation in view.operations
        if set(operation.methods) & {"POST", "PUT", "PATCH", "DELETE"}
    ]
    assert len(writing) >= 9
    for operation, where in writing:
        assert {"once", "once_async"} & set(layers(operation.view_func)), where
        assert {"ended", "ended_async"} & set(layers(operation.run)), where


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_nothing_without_the_header_two_round_trips_with_it_one_for_a_replay(django_assert_num_queries: Any) -> None:
    alice, session = make_agent(), make_session(ALICE)

    def append(entry_id: str, **more: Any) -> int:
        body = {"messages": [{"role": "user", "content": "hello", "entry_id": entry_id}]}
        with counted_round_trips() as calls:
            assert alice.post(f"/sessions/{session}/messages", body, **more).status_code == 200
        return len(calls)

    append("warm-up-0", once="warm-up-0")
    with django_assert_num_queries(0):
        assert append("e-1") == 1
        assert append("e-2", once="k-2") == 3
        assert append("e-2", once="k-2") == 1


# --- nothing was done: the key is free --------------------------------------------------------------------------------


def test_refusals_free_the_key(settings: Any) -> None:
    alice, bob = make_agent(), make_agent(actor_id="bob")
    session = make_session(ALICE)
    where = f"/sessions/{session}/context"
    settings.MAX_BODY_BYTES = 200
    refusals = [
        (Agent("xh_unknown").call("PATCH", where, {"intent": "a"}, once="k"), 401),
        (bob.call("PATCH", where, {"intent": "a"}, once="k"), 403),
        (alice.call("PATCH", "/sessions/no-such-session-here/context", {"intent": "b"}, once="k"), 404),
        (alice.post(f"/sessions/{session}/navigate", {"entry_id": "no-such-entry"}, once="k"), 404),
        (alice.call("PATCH", where, {"intent": "x" * 300}, once="k"), 413),
        (alice.call("PATCH", where, {"no_such_field": 1}, once="k"), 422),
        (alice.call("PATCH", where, "{", once="k"), 400),
        (alice.call("PATCH", where, {"intent": "c"}, once="k", **{"If-Match": '"1-1"'}), 409),
    ]
    assert [r.status_code for r, _ in refusals] == [wanted for _, wanted in refusals]
    assert kept("k") == {}
    done = alice.call("PATCH", where, {"intent": "buy"}, once="k")
    assert (done.status_code, replayed(done)) == (200, False)


@pytest.mark.parametrize(("fault", "status"), [(ValueError("odd"), 500), (RedisUnavailable("away"), 503)])
def test_faults_and_outages_free_the_key(monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int) -> None:
    def fail(**_: Any) -> None:
        raise fault

    alice = make_agent()
    with monkeypatch.context() as patch:
        patch.setattr(services, "open_session", fail)
        assert alice.post("/sessions", {}, once="k").status_code == status
    done = alice.post("/sessions", {}, once="k")
    assert (done.status_code, replayed(done)) == (201, False)


# --- at work ----------------------------------------------------------------------------------------------------------


def test_fifty_threads_with_one_key_do_it_once(monkeypatch: pytest.MonkeyPatch, busy_machine: None) -> None:
    alice, slow = make_agent(), Slow(monkeypatch)
    threads = Threads(50, lambda: alice.post("/sessions", {}, once="k"))
    until(lambda: len(threads.answers) == 49)  # all but the one that is at work have an answer
    assert {code_of(r) for r in threads.answers} == {(409, "IDEMPOTENCY_IN_FLIGHT")}
    assert {r["Retry-After"] for r in threads.answers} == {"1"}
    slow.go.set()
    answers = threads.end()
    assert sorted({r.status_code for r in answers}) == [201, 409]
    assert (slow.calls, sessions_made()) == (1, 1)
    later = Threads(20, lambda: alice.post("/sessions", {}, once="k")).end()
    assert {r.content for r in later} == {r.content for r in answers if r.status_code == 201}
    assert all(replayed(r) for r in later)


def test_fifty_threads_without_a_wait_do_it_once(busy_machine: None) -> None:
    alice = make_agent()
    answers = Threads(50, lambda: alice.post("/sessions", {}, once="k")).end()
    assert {r.status_code for r in answers} <= {201, 409}
    assert len({r.content for r in answers if r.status_code == 201}) == 1
    assert sessions_made() == 1


def test_another_request_while_the_first_is_at_work() -> None:
    claim = begin(ALICE, "k", DIGEST)
    assert isinstance(claim, Claim)
    with pytest.raises(DomainError) as other:
        begin(ALICE, "k", digest_of("POST", "/x", {"a": 1}))
    assert other.value.code == "IDEMPOTENCY_KEY_REUSED"


def ends_at(key: str) -> int:
    """When the lease of the key ends, ms since 1970."""
    return int(kept(key)["customer:until"])


def test_work_longer_than_the_lease_keeps_the_key(
    monkeypatch: pytest.MonkeyPatch, settings: Any, busy_machine: None
) -> None:
    settings.IDEMPOTENCY_LEASE_SECONDS = 1.5
    alice, slow = make_agent(), Slow(monkeypatch)
    working = Threads(1, lambda: alice.post("/sessions", {}, once="k"))
    assert slow.entered.wait(30)
    first_end = ends_at("k")
    until(lambda: ends_at("k") > first_end + 2000, seconds=30)  # renewed past the end of the first lease, and on
    assert code_of(alice.post("/sessions", {}, once="k")) == (409, "IDEMPOTENCY_IN_FLIGHT")
    slow.go.set()
    (first,) = working.end()
    again = alice.post("/sessions", {}, once="k")
    assert (first.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert (slow.calls, keeper.keeper._held) == (1, {})


def test_a_caller_that_lost_patience_takes_no_lease_from_others(
    monkeypatch: pytest.MonkeyPatch, short_lease: float
) -> None:
    """A time-out of one request keeps the next from asking for a second, which is longer than this lease."""
    claim = begin(ALICE, "k", DIGEST)
    assert isinstance(claim, Claim)
    records._redis(records.TIMEOUT).breaker.trip()
    assert claim.renew()
    records._redis(records.TIMEOUT).breaker.reset()


def test_an_answer_that_redis_was_too_slow_for_is_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, slow = make_agent(), Slow(monkeypatch)
    working = Threads(1, lambda: alice.post("/sessions", {}, once="k"))
    assert slow.entered.wait(30)
    records._redis(records.TIMEOUT).breaker.trip()  # somebody else's request has timed out
    slow.go.set()
    (first,) = working.end()
    records._redis(records.TIMEOUT).breaker.reset()
    assert first.status_code == 201
    until(lambda: "customer:status" in kept("k"))
    again = alice.post("/sessions", {}, once="k")
    assert (again.content, replayed(again), slow.calls) == (first.content, True, 1)
    until(lambda: not keeper.keeper._held)


def test_of_answers_that_wait_for_redis_there_are_not_ever_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(self: Claim, answer: Answer, **_: Any) -> bool:
        raise RedisUnavailable("away")

    monkeypatch.setattr(Claim, "put", away)
    monkeypatch.setattr(keeper, "MOST_WAITING", 2)
    claims = [Claim(f"none:{n}", "customer", "t") for n in range(3)]
    for claim in claims:
        keeper.keeper.keep_answer(claim, Answer(201, {}, "x"))
    assert [claim in keeper.keeper._held for claim in claims] == [True, True, False]
    assert "could not be kept" in caplog.text
    monkeypatch.setattr(keeper, "LONGEST_SECONDS", 0)
    for claim in claims:
        keeper.keeper.drop(claim)


def test_an_end_that_was_missed_does_not_keep_the_key_for_ever(
    monkeypatch: pytest.MonkeyPatch, short_lease: float
) -> None:
    monkeypatch.setattr(keeper, "LONGEST_SECONDS", 0.3)
    claim = begin(ALICE, "k", DIGEST)
    assert isinstance(claim, Claim)
    keeper.keeper.keep(claim)
    until(lambda: isinstance(_try_begin("k"), Claim), seconds=5)


def _try_begin(key: str) -> Any:
    try:
        return begin(ALICE, key, DIGEST)
    except DomainError as error:
        return error.code


HOLDER = """
import os, sys, time
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.REDIS_KEY_PREFIX = sys.argv[1]
django.setup()
from guard.access.services import Caller
from guard.idempotency import Answer, begin, digest_of, keeper
settings.IDEMPOTENCY_LEASE_SECONDS = 0.9
claim = begin(Caller("default", "customer", "alice"), "k", digest_of("POST", "/x", {}))
keeper.keeper.keep(claim)
print("at work", flush=True)
sys.stdin.readline()
print(claim.save(Answer(201, {}, "late")), flush=True)
"""


@pytest.mark.slow  # starts, kills and suspends a real process
@pytest.mark.parametrize("dies", [True, False])
def test_a_killed_holder_frees_the_key_and_a_suspended_one_is_not_heard(
    settings: Any, short_lease: float, dies: bool
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, settings.REDIS_KEY_PREFIX],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=PROJECT,
        env={**os.environ, "REDIS_URL": settings.REDIS_URL},
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"at work\n"
    time.sleep(1.2)  # it is renewed
    assert _try_begin("k") == "IDEMPOTENCY_IN_FLIGHT"
    holder.send_signal(signal.SIGKILL if dies else signal.SIGSTOP)
    claim = until(lambda: isinstance(found := _try_begin("k"), Claim) and found, seconds=5)
    assert claim.save(Answer(201, {}, "anew"))
    if not dies:
        holder.send_signal(signal.SIGCONT)
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"False\n"
    holder.kill()
    holder.wait()
    found = begin(ALICE, "k", DIGEST)
    assert (isinstance(found, Answer), found.body) == (True, "anew")  # type: ignore[union-attr]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_an_answer_that_is_too_large_is_not_kept_and_the_work_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.idempotency.http.MAX_BODY", 100)
    alice = make_agent()
    assert alice.post("/sessions", {}, once="k").status_code == 201
    again = alice.post("/sessions", {}, once="k")
    assert (code_of(again), again.json()["original_status"]) == ((409, "IDEMPOTENCY_ANSWER_GONE"), 201)
    assert sessions_made() == 1


def test_an_answer_that_nobody_may_store_is_not_written_down() -> None:
    alice = make_agent()
    first = alice.post("/tokens", once="k")
    assert first.status_code == 201
    assert first["Cache-Control"] == "no-store"
    assert not {value for value in kept("k").values() if value and value in first.content.decode()} - {"201"}
    assert code_of(alice.post("/tokens", once="k")) == (409, "IDEMPOTENCY_ANSWER_GONE")


def test_a_record_without_an_end_gets_one_and_damage_is_not_an_answer() -> None:
    client = base_redis.state()
    claim = begin(ALICE, "k", DIGEST)
    assert isinstance(claim, Claim)
    client.persist(claim.key)
    assert _try_begin("k") == "IDEMPOTENCY_IN_FLIGHT"
    assert client.ttl(claim.key) > 0
    client.persist(claim.key)
    assert claim.renew()
    assert client.ttl(claim.key) > 0
    client.persist(claim.key)
    assert claim.save(Answer(200, {}, "done"))
    assert client.ttl(claim.key) > 0
    client.hset(claim.key, "customer:until", "9" * 15)  # in a far future
    assert isinstance(_try_begin("k"), Claim)
    client.delete(claim.key)
    client.set(claim.key, "a string")
    assert not claim.renew()
    assert isinstance(_try_begin("k"), Claim)
    assert client.type(claim.key) == "hash"


def test_an_erased_customers_answers_go_whoever_got_them() -> None:
    alice, wei, bob = make_agent(), make_agent("advisor", "wei"), make_agent(actor_id="bob")
    alices = alice.post("/sessions", {}, once="own").json()["session_id"]
    about = wei.post("/sessions", {"customer_id": "alice"}, once="about").json()["session_id"]
    wei.call("PATCH", f"/sessions/{about}/context", {"intent": "a secret"}, once="context")
    alice.call("PATCH", f"/sessions/{alices}/context", {"intent": "a secret"}, once="context")
    wei.post("/sessions", {"customer_id": "bob"}, once="of-bob")
    bob.post("/sessions", {}, once="own")
    at_work = begin(ALICE, "at-work", DIGEST)
    assert isinstance(at_work, Claim)
    assert not [value for value in kept("about", "wei").values() if value == "alice"]
    call_command("erase_customer", "alice", "--by", "dpo", stdout=open(os.devnull, "w"))  # noqa: SIM115
    assert [kept(k) for k in ("own", "context", "at-work")] == [{}, {}, {}]
    assert [bool(kept(k, "wei")) for k in ("about", "context", "of-bob")] == [False, False, True]
    assert kept("own", "bob")
    assert not at_work.save(Answer(200, {}, "a secret"))  # too late to be kept
    assert kept("at-work") == {}


def test_an_emptied_redis_while_at_work_keeps_nothing() -> None:
    claim = begin(ALICE, "k", DIGEST)
    assert isinstance(claim, Claim)
    empty_redis()
    assert not claim.save(Answer(200, {}, "x"))
    assert isinstance(begin(ALICE, "k", DIGEST), Claim)
