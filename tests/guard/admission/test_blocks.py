"""Blocks and pauses: at once, through a loss of Redis, lifted, longer for repeat offenders, on record."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from config.base import redis as base_redis
from config.base.clock import now
from config.base.errors import DomainError
from guard.access.services import Caller
from guard.admission import keys
from guard.admission.blocks import block_actor, lift_block, lift_pause, pause_agent, sweep
from guard.admission.models import ActorBlock, AgentPause
from guard.admission.policy import forget_policy, policy
from guard.admission.services import admit
from tests.guard.admission.helpers import ALICE, BOB, audit_rows, empty_redis, together

pytestmark = pytest.mark.django_db(transaction=True)


def block(**more: Any) -> ActorBlock:
    return block_actor(**{"tenant": "default", "actor_id": "alice", "code": "INJECTION", "by": "officer"} | more)


def block_key() -> str:
    return keys.BLOCK("default", actor_id="alice")


def minutes(row: ActorBlock) -> float:
    return (row.expires_at - row.started_at).total_seconds() / 60


def test_it_counts_at_once_and_so_does_its_end() -> None:
    assert admit(ALICE).allowed
    block()
    verdict = admit(ALICE)
    assert (verdict.refused_by, verdict.error().code, verdict.error().status) == ("block", "ACTOR_BLOCKED", 403)
    assert 890 < verdict.retry_after <= 900
    assert admit(BOB).allowed
    assert lift_block(tenant="default", actor_id="alice", by="officer")
    assert admit(ALICE).allowed
    assert not lift_block(tenant="default", actor_id="alice", by="officer")
    assert [row.decision for row in audit_rows("actor_block")] == ["applied", "lifted"]
    assert audit_rows("admission")[0].decision == "denied"


def test_a_loss_of_redis_ends_no_block() -> None:
    block()
    policy()
    empty_redis()
    assert admit(ALICE).refused_by == "block"
    assert 0 < base_redis.state().ttl(block_key()) <= 900
    # one that was lifted elsewhere, which this process's copy does not know yet
    policy()
    ActorBlock.objects.update(open=None, ended_at=now(), lifted_by="officer")
    base_redis.state().delete(block_key())
    assert admit(ALICE).allowed


def test_a_key_without_an_end_gets_one() -> None:
    base_redis.state().set(block_key(), "1")
    assert admit(ALICE).refused_by == "block"
    assert 0 < base_redis.state().ttl(block_key()) <= 900


def test_each_further_time_is_twice_as_long_up_to_a_day() -> None:
    lasted = []
    for _ in range(9):
        row = block()
        lasted.append(minutes(row))
        ActorBlock.objects.filter(pk=row.pk).update(expires_at=now())
    assert lasted == [15, 30, 60, 120, 240, 480, 960, 1440, 1440]
    assert [row.decision for row in audit_rows("actor_block")] == ["applied", "expired"] * 8 + ["applied"]
    # lifted ones were mistakes; and what is long ago is forgotten
    ActorBlock.objects.update(lifted_by="officer", open=None, ended_at=now())
    assert minutes(block()) == 15
    ActorBlock.objects.update(open=None, started_at=now() - timedelta(days=31), lifted_by="")
    assert minutes(block()) == 15


def test_a_longer_block_than_the_copy_lasts() -> None:
    block(seconds=3600)
    assert 3500 < base_redis.state().ttl(block_key()) <= 3600
    policy()
    base_redis.state().delete(block_key())
    assert admit(ALICE).refused_by == "block"


def test_many_high_risk_inputs_at_once_are_one_block() -> None:
    rows = together(16, lambda n: block().pk)
    assert len(set(rows)) == 1
    assert ActorBlock.objects.count() == len(audit_rows("actor_block")) == 1
    assert block(seconds=3600).pk == rows[0]
    assert minutes(ActorBlock.objects.get()) == pytest.approx(60, abs=1)


def test_the_sweep_tells_what_is_over() -> None:
    row = block()
    ActorBlock.objects.filter(pk=row.pk).update(expires_at=now())
    assert sweep() == {"expired": 1, "removed": 0}
    assert sweep()["expired"] == 0
    assert [row.decision for row in audit_rows("actor_block")] == ["applied", "expired"]


def test_the_sweep_removes_what_was_lifted_while_redis_was_away() -> None:
    block()
    ActorBlock.objects.update(open=None, ended_at=now(), lifted_by="officer")
    assert sweep()["removed"] == 1
    assert not base_redis.state().exists(block_key())


def test_an_officer_pauses_an_agent_at_once() -> None:
    with pytest.raises(DomainError):
        pause_agent(tenant="default", agent="customer", reason=" ", by="officer")
    pause_agent(tenant="default", agent="customer", reason="answers wrongly", by="officer")
    verdict = admit(ALICE)
    assert (verdict.refused_by, verdict.error().code, verdict.error().status) == ("pause", "AGENT_PAUSED", 403)
    assert admit(Caller("default", "advisor", "wei")).allowed
    assert admit(Caller("other", "customer", "alice")).allowed
    policy()
    empty_redis()
    assert admit(ALICE).refused_by == "pause"
    pause_agent(tenant="default", agent="customer", reason="again", by="officer")
    assert AgentPause.objects.get().reason == "answers wrongly"
    assert lift_pause(tenant="default", agent="customer", by="officer")
    assert admit(ALICE).allowed
    assert [row.decision for row in audit_rows("agent_pause")] == ["applied", "lifted"]
    assert audit_rows("agent_pause")[0].input_summary["reason"] == "answers wrongly"


def test_the_command() -> None:
    block()
    out = io.StringIO()
    call_command("unblock", "alice", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"actor": "alice", "lifted": True}
    with pytest.raises(SystemExit) as ended:
        call_command("unblock", "alice", stdout=out)
    assert ended.value.code == 1
    assert admit(ALICE).allowed
    assert audit_rows("actor_block")[-1].actor_id.startswith("manage.py")


def test_a_long_block_says_its_true_end() -> None:
    block(seconds=7200)
    for _ in range(2):
        verdict = admit(ALICE)
        assert (verdict.refused_by, 7100 < verdict.retry_after <= 7200) == ("block", True)
        assert 7100 < base_redis.state().ttl(block_key()) <= 7200
        policy()
        empty_redis()  # put back from the table


def test_an_end_that_redis_was_not_told_counts_all_the_same() -> None:
    block(seconds=7200)
    ActorBlock.objects.update(open=None, ended_at=now(), lifted_by="officer")
    forget_policy()
    assert admit(ALICE).allowed
    assert not base_redis.state().exists(block_key())
