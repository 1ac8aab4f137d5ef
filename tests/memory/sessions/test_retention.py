"""Conversations that are over go whole; one that a fork or a legal hold needs stays whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from config.base.clock import now
from config.base.errors import DomainError
from guard.admission.models import Fence
from memory.erasure.holds import place_hold, release_hold
from memory.sessions import branching, retention, selectors
from memory.sessions.drain import drain
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.memory.erasure.helpers import ALICE, ALICE_ID, BOB, BOB_ID, Thread, make_session, say
from tests.pruning import prune_table

pytestmark = pytest.mark.django_db(transaction=True)
FAR = timedelta(days=21 * 366)


def make_talk(caller: Any = ALICE, customer_id: str = ALICE_ID, messages: int = 3) -> str:
    session = make_session(caller, customer_id)
    for n in range(messages):
        say(session, f"{n}", caller=caller, durability="sync")
    return session


def row(session_id: str) -> AgentSession:
    return AgentSession.objects.get(session_id=session_id)


def said(session_id: str) -> int:
    return AgentMessage.objects.filter(session_row=row(session_id)).count()


def test_an_old_conversation_goes_and_its_id_is_never_used_again() -> None:
    session = make_talk()
    Fence.objects.create(tenant="default", session_id=session, ceiling=5)
    result = prune_table("agent_session")
    assert (result.removed, result.also["agent_message"], result.also["fence"]) == (1, 3, 1)
    left = row(session)
    assert (left.actor_id, left.customer_id, left.erased_at is not None) == ("", "", True)
    assert said(session) == 0
    with pytest.raises(DomainError) as refused:
        make_session(session_id=session)
    assert refused.value.code in {"SESSION_CONFLICT", "SESSION_DELETED", "CUSTOMER_ERASED", "NOT_OWNER"}
    assert prune_table("agent_session").removed == 0


def test_what_was_said_last_decides() -> None:
    quiet, lively = make_talk(), make_talk()
    AgentSession.objects.update(created_at=now() - FAR, opened_at=now() - FAR)
    AgentMessage.objects.update(created_at=now() - FAR)
    AgentMessage.objects.filter(session_row=row(lively), seq=3).update(created_at=now() - timedelta(days=7000))
    assert prune_table("agent_session", at=now()).removed == 1
    assert (said(quiet), said(lively)) == (0, 3)


def test_a_prefix_that_a_younger_fork_shares_stays_and_goes_with_it() -> None:
    root = make_talk()
    fork = branching.fork(caller=ALICE, session_id=root).owner.session_id
    AgentSession.objects.filter(session_id=root).update(created_at=now() - FAR, opened_at=now() - FAR)
    AgentMessage.objects.update(created_at=now() - FAR)
    result = prune_table("agent_session", at=now())
    assert (result.removed, result.spared) == (0, 1)
    page = selectors.read_messages(caller=ALICE, session_id=fork, limit=20)
    assert [message.content for message in page.messages] == ["0", "1", "2"]
    assert prune_table("agent_session").removed == 2  # both are over: the fork, then what it shared
    assert (said(root), said(fork)) == (0, 0)


def test_a_legal_hold_keeps_the_customers_and_nobody_elses() -> None:
    held, other = make_talk(), make_talk(BOB, BOB_ID)
    hold = place_hold(customer_id=ALICE_ID, by="manage.py legal_hold", reason="a complaint")
    result = prune_table("agent_session")
    assert (result.removed, result.held) == (1, 1)
    assert (said(held), said(other)) == (3, 0)
    release_hold(hold_id=hold.pk, by="manage.py legal_hold")
    assert prune_table("agent_session").removed == 1


def test_a_fork_that_is_held_keeps_what_it_shares() -> None:
    root = make_talk(BOB, BOB_ID)
    fork = branching.fork(caller=BOB, session_id=root).owner.session_id
    AgentSession.objects.filter(session_id=fork).update(customer_id=ALICE_ID)
    place_hold(customer_id=ALICE_ID, by="manage.py legal_hold", reason="a complaint")
    assert prune_table("agent_session").removed == 0
    assert said(root) == 3


def test_many_messages_go_in_steps_and_a_death_in_between_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "STEP_ROWS", 2)
    session, other = make_talk(messages=7), make_talk(messages=1)
    real, steps = retention._remove_rest, []

    def dies(*arguments: Any) -> None:
        steps.append(said(session))
        raise DatabaseError("the connection went away")

    monkeypatch.setattr(retention, "_remove_rest", dies)
    assert prune_table("agent_session").error == "DatabaseError"
    assert 0 < said(session) < 7
    assert row(session).erased_at is not None
    reattach()  # nobody reads half of it
    with pytest.raises(DomainError):
        selectors.read_messages(caller=ALICE, session_id=session, limit=20)
    monkeypatch.setattr(retention, "_remove_rest", real)
    result = prune_table("agent_session")
    assert (result.removed, result.error) == (2, "")
    assert (said(session), said(other), row(session).actor_id) == (0, 0, "")


def test_an_append_that_comes_while_it_goes_is_refused_or_kept() -> None:
    session = make_talk()
    pruner = Thread(lambda: prune_table("agent_session")).end()
    assert pruner.error is None
    with pytest.raises(DomainError) as refused:
        say(session, "late", durability="sync")
    assert refused.value.status == 410
    drain(seconds=0.2)
    assert said(session) == 0


def test_what_redis_has_not_been_told_of_waits() -> None:
    session = make_talk()
    AgentSession.objects.update(detached_at=now())
    assert prune_table("agent_session").removed == 0
    reattach()
    assert prune_table("agent_session").removed == 1
    assert said(session) == 0


def test_dead_letters_go_once_somebody_has_decided() -> None:
    session = make_talk()
    for n, settled in enumerate(("", "dropped", "retried")):
        MessageDeadLetter.objects.create(
            tenant="default", session_id=session, entry_id=f"e{n}", reason="no_session", stream_id=f"{n}-0",
            raw="x", settled=settled, settled_at=now() if settled else None,
        )  # fmt: skip
    hold = place_hold(customer_id=ALICE_ID, by="manage.py legal_hold", reason="a complaint")
    at = now() + timedelta(days=401)
    assert prune_table("message_dead_letter", at=at).held == 2
    release_hold(hold_id=hold.pk, by="manage.py legal_hold")
    assert prune_table("message_dead_letter", at=now() + timedelta(days=399)).removed == 0
    assert prune_table("message_dead_letter", at=at).removed == 2
    assert MessageDeadLetter.objects.get().settled == ""
