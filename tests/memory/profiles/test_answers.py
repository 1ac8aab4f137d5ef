"""The answer cache: the same question is answered once, and nobody gets what was made from another's data."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.keys import match, prefixed
from memory.erasure.services import erase_customer
from memory.profiles import leased
from memory.profiles.answers import keys, services
from memory.profiles.answers.hashing import names_id, normalised
from memory.profiles.answers.services import Found, get, purge, put
from tests.counting import counted_round_trips
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    LIN,
    WEI,
    make_agent,
    make_assignment,
    make_caller,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

ABOUT: dict[str, Any] = {"question": "什么是 R2 基金？", "model": "m-1", "knowledge_version": "2026-11"}


def ask(agent: str = "advisor", actor: str = "", tenant: str = "default", **more: Any) -> Found:
    return get(caller=make_caller(agent, actor, tenant), **{**ABOUT, **more})


def keep(lease: str, agent: str = "advisor", actor: str = "", tenant: str = "default", **more: Any) -> bool:
    told = {**ABOUT, "answer": "中低风险。", "made_from": "public", **more}
    return put(caller=make_caller(agent, actor, tenant), lease=lease, **told)


def names() -> list[str]:
    prefix = prefixed("")
    found = base_redis.client_for(django_settings.CACHE_REDIS_URL).scan_iter(f"{prefix}*")
    return sorted(name.removeprefix(prefix) for name in found)


# --- the same question --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is R2?", "  what   is R2 "),
        ("什么是Ｒ２基金？", "什么是R2基金"),
        ("可以赎回吗？！……", "可以赎回吗"),
        ("ｆｉｎｅ", "fine..."),
        ("What is R2。", "What is R2？"),
        ("“What is R2”", "“what is R2”"),
        ("a\u3000b\n", "a b。"),
        ("请问 What about a Fund？", "请问 what about a Fund"),
        ("cafe\u0301", "café"),
    ],
)
def test_spelling_makes_no_other_question(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10² 元", "102 元"),
        ("½", "12"),
        ("1.5 倍", "15 倍"),
        ("买入基金", "卖出基金"),
        ("Is it (R2)", "Is it R2"),
        ("不,要", "不要"),
        ("2ⁿ 年后翻几倍", "2n 年后翻几倍"),
        ("余额 10 mW 吗", "余额 10 MW 吗"),
        ("5Mpa", "5mpa"),
        ("5 Mpa", "5 mpa"),
        ("2㍙", "21点"),
        ("ﬁne", "fine"),
        ("What does WHO say", "What does who say"),
        ("x₂", "x2"),
        ("Ⅳ", "IV"),
        ("㎏", "kg"),
        ("a-Bcd", "a-bcd"),
        ("Turkey", "turkey"),
        ("Gap shares", "gap shares"),
        ("Will grants", "will grants"),
        ("What is Target", "What is target"),
        ("请问 What About a fund", "请问 what about a fund"),
        ("Target: What", "Target: what"),
        ("What-if", "what-if"),
        ("卖出。", "卖出？"),
        ("卖出", "卖出？！"),
        ("You may sell.", "You may sell?"),
    ],
)
def test_what_means_something_else_is_another_question(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_what_is_no_question_is_refused() -> None:
    for question in ("", "  ", "？！", "x" * 8001):
        with pytest.raises(DomainError, match="INVALID_REQUEST"):
            ask(question=question)


def test_an_answer_is_found_by_whoever_asks_the_same() -> None:
    missed = ask()
    assert (missed.answer, missed.retry_after) == (None, None)
    assert keep(missed.lease)
    found = ask(question="什么是R2基金")
    # (a space is a space: the question above has one)
    assert found.answer is None
    found = ask(question="什么是 Ｒ2　基金！")
    assert (found.answer, found.scope, found.lease) == ("中低风险。", "public", "")
    for other in ({"model": "m-2"}, {"knowledge_version": "2026-12"}, {"agent": "risk"}, {"tenant": "t2"}):
        assert ask(**other).answer is None


def test_the_key_tells_nothing_and_the_value_is_readable_json() -> None:
    keep(ask("customer").lease, "customer", made_from="customer", answer="您持有 R2 基金")
    everything = " ".join(names())
    assert ALICE not in everything
    assert "R2" not in everything
    [name] = [name for name in names() if match(name) is keys.ANSWER]
    client = base_redis.client_for(django_settings.CACHE_REDIS_URL)
    value = json.loads(client.get(prefixed(name)))
    assert (value["answer"], value["scope"], value["agent"]) == ("您持有 R2 基金", "customer", "customer")
    assert ALICE not in json.dumps(value)
    assert 3590 <= client.ttl(prefixed(name)) <= 3600
    for name in names():
        kind = match(name)
        assert kind is not None, name
        assert 0 < client.ttl(prefixed(name)) <= (kind.ttl or 0)


def test_costs(django_assert_num_queries: Any) -> None:
    keep(ask("customer").lease, "customer")
    with counted_round_trips() as sent, django_assert_num_queries(0):
        assert ask("customer").answer
        assert keep("", "customer") is False
    assert sent == ["EVALSHA"]


# --- whose --------------------------------------------------------------------------------------------------------


def test_what_was_made_from_one_customers_data_never_reaches_another() -> None:
    assert keep(ask("customer").lease, "customer", made_from="customer", answer="您有 12 万")
    assert ask("customer").answer == "您有 12 万"
    assert ask("customer", BOB).answer is None
    assert ask("customer", scope="public").answer is None
    assert ask("customer", BOB, scope="public").answer is None
    make_assignment(customer_id=BOB)
    assert ask(customer_id=BOB).answer is None


@pytest.mark.parametrize(("agent", "one", "other"), [("advisor", WEI, LIN), ("risk", "off-1", "off-2")])
def test_what_was_made_for_one_actor_never_reaches_another_who_has_the_customer_too(
    agent: str, one: str, other: str
) -> None:
    make_assignment(WEI)
    make_assignment(LIN)
    lease = ask(agent, one, customer_id=ALICE).lease
    assert keep(lease, agent, one, customer_id=ALICE, made_from="customer", answer="from my notes")
    assert ask(agent, one, customer_id=ALICE).answer == "from my notes"
    assert ask(agent, other, customer_id=ALICE).answer is None


@pytest.mark.parametrize("field", ["question", "model", "knowledge_version", "answer", "lease"])
def test_half_of_a_surrogate_pair_is_no_text_for_python_callers_either(field: str) -> None:
    told = {**ABOUT, "answer": "x", "made_from": "public", "lease": "p.x.y", field: "\ud800"}
    with pytest.raises(DomainError) as refusal:
        put(caller=make_caller("advisor"), **told)
    assert refusal.value.status == 422


def test_a_customer_may_find_what_is_public() -> None:
    assert keep(ask("customer", scope="public").lease, "customer")
    assert (ask("customer").answer, ask("customer").scope) == ("中低风险。", "public")
    assert ask("customer", BOB).answer == "中低风险。"


def test_a_customers_scope_needs_the_customer_at_each_read() -> None:
    assignment = make_assignment()
    assert keep(ask(customer_id=ALICE).lease, customer_id=ALICE, made_from="customer")
    assert ask(customer_id=ALICE).answer
    assignment.delete()
    for work in (lambda: ask(customer_id=ALICE), lambda: keep("c.x.y", customer_id=ALICE, made_from="customer")):
        with pytest.raises(DomainError, match="NOT_ASSIGNED"):
            work()
    with pytest.raises(DomainError, match="NOT_OWNER"):
        ask("customer", BOB, customer_id=ALICE)
    with pytest.raises(DomainError, match="AUTH_403_SCOPE"):
        ask("analyst", customer_id=ALICE)
    assert ask("risk", customer_id=ALICE).lease


def test_the_writer_must_say_what_it_was_made_from() -> None:
    lease = ask().lease
    for wrong in ({"made_from": None}, {"made_from": "both"}, {"made_from": "customer"}):
        with pytest.raises(DomainError, match="INVALID_REQUEST"):
            keep(lease, **wrong)
    with pytest.raises(DomainError, match="not public"):
        keep(ask("customer").lease, "customer", answer=f"{ALICE} 有 12 万")
    assert ask().answer is None


@pytest.mark.parametrize(
    "spelled",
    [
        "c000001", "Ｃ０００００１", "C 000 001", "C-000-001", "\u0421000001", "C\u200b000001", "客户C000001的",
        "xC000001", "C٠٠٠٠٠١", "C·000·001", "C_000001",
    ],
)  # fmt: skip
def test_what_names_the_customer_is_not_public_however_the_id_is_spelled(spelled: str) -> None:
    make_assignment(customer_id="C000001")
    lease = ask(customer_id="C000001").lease
    with pytest.raises(DomainError, match="not public"):
        keep(lease, customer_id="C000001", answer=f"{spelled} 有 12 万")
    with pytest.raises(DomainError, match="not public"):
        keep(lease, customer_id="C000001", question=f"{spelled} 有多少")
    assert keep(lease, customer_id="C000001", answer="C00 0002 有 12 万，C0000 1")


def test_a_short_id_is_named_as_a_word_alone() -> None:
    for text, named in (("12 万", True), ("第１２号", True), ("112 万", False), ("1.2", False), ("a12", False)):
        assert names_id(text, "12") is named, text
    assert [names_id(text, "a-1") for text in ("A–1", "a1", "ba-1", "a")] == [True, True, False, False]
    assert [names_id(text, "..") for text in ("so...", "so.")] == [True, False]


def test_a_lookup_for_a_customer_may_end_in_a_public_answer_and_the_other_way_round() -> None:
    assert keep(ask("customer").lease, "customer", made_from="public")
    assert ask("customer", BOB).answer
    lease = ask("customer", scope="public", question="我有多少").lease
    assert keep(lease, "customer", question="我有多少", made_from="customer", answer="12 万")
    assert ask("customer", question="我有多少").answer == "12 万"
    assert ask("customer", scope="public", question="我有多少").answer is None


def test_erased_with_the_customer_and_not_made_again() -> None:
    assert keep(ask("customer").lease, "customer", made_from="customer", answer="12 万")
    assert keep(ask("customer", BOB).lease, "customer", BOB, made_from="customer", answer="7 万")
    lease = ask("customer", question="later").lease
    receipt = erase_customer(customer_id=ALICE, by="dpo")
    assert receipt.removed["redis.answer_cache"] == {"answers": 1}
    assert ask("customer").answer is None
    assert ask("customer", BOB).answer == "7 万"
    with pytest.raises(DomainError, match="CUSTOMER_ERASED"):
        keep(lease, "customer", question="later", made_from="customer")
    assert len([name for name in names() if match(name) is keys.ANSWER]) == 1


# --- bounds and versions ------------------------------------------------------------------------------------------


def test_an_answer_is_whole_or_refused() -> None:
    answer = "答" * (services.MAX_ANSWER_BYTES // 3)
    assert keep(ask().lease, answer=answer)
    assert ask().answer == answer
    lease = ask(question="q2").lease
    with pytest.raises(DomainError, match="BODY_TOO_LARGE"):
        keep(lease, question="q2", answer=answer + "xx")
    for wrong in ("", "\ud800"):
        with pytest.raises(DomainError, match="INVALID_REQUEST"):
            keep(lease, question="q2", answer=wrong)


def test_a_purge_makes_all_of_an_agent_unreachable_at_once() -> None:
    lease = ask(question="under way").lease
    assert keep(ask().lease)
    assert keep(ask("risk").lease, "risk")
    purge(tenant="default", agent="advisor")
    assert ask().answer is None
    assert ask("risk").answer
    # What was being made meanwhile is not kept, and somebody else may make it now.
    assert not keep(lease, question="under way")
    fresh = ask(question="under way").lease
    assert fresh
    assert keep(fresh, question="under way")


def test_an_announced_knowledge_version_serves_nobody_else() -> None:
    assert keep(ask().lease)
    purge(tenant="default", agent="advisor", knowledge_version="2026-12")
    for _ in range(2):
        assert ask() == Found()  # nobody makes it for them: there is nothing to wait for
    began = time.monotonic()
    assert ask(wait=5) == Found()
    assert time.monotonic() - began < 1
    lease = ask(knowledge_version="2026-12").lease
    assert keep(lease, knowledge_version="2026-12")
    assert ask(knowledge_version="2026-12").answer
    assert ask(knowledge_version="2026-12", question="other").lease
    assert ask(knowledge_version="2026-12", question="other").retry_after  # and here there is


def test_an_announcement_holds_through_later_purges_until_it_is_lifted() -> None:
    def purged(**options: Any) -> dict[str, Any]:
        out = io.StringIO()
        call_command("answers", purge="advisor", json=True, stdout=out, **options)
        return dict(json.loads(out.getvalue()))

    assert purged()["only_version"] is None
    assert purged(knowledge_version="2026-12")["only_version"] == "2026-12"
    assert keep(ask(knowledge_version="2026-12").lease, knowledge_version="2026-12")
    assert purged()["only_version"] == "2026-12"
    assert ask(knowledge_version="2026-12").answer is None
    assert ask() == Found()
    assert purged(knowledge_version="2027-01")["only_version"] == "2027-01"
    assert ask(knowledge_version="2026-12") == Found()
    assert purged(any_version=True)["only_version"] is None
    assert ask().lease
    for wrong in ({"any_version": True}, {"purge": "advisor", "any_version": True, "knowledge_version": "x"}):
        with pytest.raises(CommandError):
            call_command("answers", **wrong)


def test_an_evicted_epoch_is_a_miss_and_never_an_old_answer() -> None:
    assert keep(ask().lease)
    leased.client().delete(keys.EPOCH("default", agent="advisor"))
    assert ask().answer is None


# --- stampede -----------------------------------------------------------------------------------------------------


def test_of_thirty_who_ask_one_makes_the_answer_and_the_others_wait_for_it() -> None:
    made: list[int] = []
    answers: list[Any] = []

    def work() -> None:
        try:
            found = ask(wait=10)
            if found.lease:
                made.append(1)
                keep(found.lease)
                found = ask()
            answers.append(found.answer)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(made), answers) == (1, ["中低风险。"] * 30)


def test_a_lease_that_ran_out_keeps_nothing_over_the_next_ones_answer() -> None:
    slow = ask().lease
    assert ask().retry_after
    leased.client().delete(keys.ANSWER_LEASE("default", query_hash=_hash()))
    assert keep(ask().lease, answer="new")
    assert not keep(slow, answer="old")
    assert ask().answer == "new"
    assert not keep("nonsense")
    assert not keep("c.x.y")


def _hash() -> str:
    asked = services._asked(make_caller("advisor"), **ABOUT, customer_id=None, scope=None)
    return asked.hash_in("")


# --- outages, damage ----------------------------------------------------------------------------------------------


def test_with_redis_away_it_is_a_miss_in_bounded_time(settings: Any, own_redis_server: RedisServer) -> None:
    settings.CACHE_REDIS_URL = own_redis_server.url.replace("/0", "/1")
    assert keep(ask().lease)
    own_redis_server.pause()
    began = time.monotonic()
    for _ in range(20):
        assert ask() == Found()
        assert not keep("p.x.y")
    assert time.monotonic() - began < 1
    own_redis_server.resume()
    own_redis_server.kill()
    leased.client().breaker.reset()
    assert ask() == Found()
    with pytest.raises(base_redis.RedisUnavailable):
        purge(tenant="default", agent="advisor")
    own_redis_server.start()
    leased.client().breaker.reset()
    assert ask().answer
    own_redis_server.empty()
    base_redis.forget_clients()
    assert ask().lease


def test_what_another_program_wrote_there_is_a_miss(settings: Any) -> None:
    assert keep(ask().lease)
    client = leased.client()
    name = keys.ANSWER("default", query_hash=_hash())
    epoch = client.get(keys.EPOCH("default", agent="advisor"))
    for value in ("no json", f'{{"_epoch":"{epoch}",', f'{{"_epoch":"{epoch}","answer":"x"}}'):
        client.set(name, value, ex=100)
        assert ask().answer is None
    client.delete(name)
    client.rpush(name, "x")
    assert ask().answer is None
    assert client.type(name) == "none"


# --- HTTP, figures ------------------------------------------------------------------------------------------------


def test_over_http() -> None:
    wei = make_agent("advisor", WEI)
    missed = wei.call("POST", "/answers/lookup", ABOUT).json()
    assert (missed["hit"], missed["answer"], missed["retry_after"]) == (False, None, None)
    assert wei.call("POST", "/answers/lookup", ABOUT).json()["retry_after"] == 0.5
    put_body = {**ABOUT, "answer": "中低风险。", "lease": missed["lease"]}
    refused = wei.put("/answers", put_body)
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_REQUEST")
    assert wei.put("/answers", {**put_body, "made_from": "public"}).json() == {"kept": True}
    found = wei.call("POST", "/answers/lookup", ABOUT).json()
    assert (found["hit"], found["answer"], found["scope"], found["lease"]) == (True, "中低风险。", "public", None)
    assert found["age_seconds"] >= 0
    stranger = wei.call("POST", "/answers/lookup", {**ABOUT, "customer_id": ALICE})
    assert (stranger.status_code, stranger.json()["code"]) == (403, "NOT_ASSIGNED")
    assert wei.call("POST", "/answers/lookup", {**ABOUT, "colour": 1}).status_code == 422
    assert Client().post("/api/v1/answers/lookup", b"{", content_type="application/json").status_code == 401


def test_the_hit_rate_can_be_seen() -> None:
    keep(ask().lease)
    for _ in range(3):
        ask()
    ask(question="other")
    ask(question="other")
    assert services.lookups() == {("default", "advisor"): {"hit": 3, "miss": 2, "wait": 1}}
    text = Client().get("/metrics").content.decode()
    assert 'xinghuo_answer_cache_lookups{agent="advisor",result="hit",tenant="default"} 3.0' in text
    out = io.StringIO()
    call_command("answers", json=True, stdout=out)
    assert json.loads(out.getvalue())["lookups"][0]["hit_rate"] == 0.6
    call_command("answers", purge="advisor", stdout=io.StringIO())
    assert ask().answer is None
