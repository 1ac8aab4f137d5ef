"""Forks and turns of a path: what a fork shares is neither its gap nor its loss; a turn names entries that exist."""

from __future__ import annotations

import pytest

from config.base import redis as base_redis
from memory.sessions import branching
from memory.sessions.drain import drain
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, AgentSession, SessionBranch
from memory.sessions.owners import forget_owners
from tests.memory.sessions.helpers import ALICE, append, contents, make_message, make_session, owner, put, stored
from tests.memory.sessions.reconciling import run

pytestmark = pytest.mark.django_db(transaction=True)


def make_fork(of: str, seq: int) -> str:
    """A session that shares everything of another up to a number, as rows."""
    session = f"{of}-fork"
    AgentSession.objects.create(
        session_id=session, agent="customer", actor_id="alice", lineage=[[owner(of).pk, seq]], seq_ceiling=seq,
        lease_from=seq + 1,
    )  # fmt: skip
    forget_owners()
    return session


def make_turn(session: str, **fields: object) -> SessionBranch:
    pk = owner(session).pk
    row = {"kind": "navigate", "at_seq": 3, "target_pk": pk, "target_seq": 1, **fields}
    return SessionBranch.objects.create(session_row_id=pk, **row)


def told() -> tuple[int, list[tuple[str, str]]]:
    code, report = run()
    return code, [(f["kind"], f["why"]) for f in report["findings"] if f["open"]]


def test_what_a_fork_shares_is_neither_its_gap_nor_its_loss() -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(9)])
    drain()
    fork = make_fork(session, 5)
    assert told() == (0, [])
    assert contents(fork, 20) == ["m0", "m1", "m2", "m3", "m4"]  # its window names entries of the other session
    assert [receipt.seq for receipt in append(fork, "own")] == [6]
    assert told() == (0, [])
    drain()
    append(fork, "two", "three")
    drain()
    assert told() == (0, [])
    AgentMessage.objects.filter(session_row_id=owner(fork).pk, seq=7).delete()
    code, report = run("--session", fork)
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("lost_message", 7, 7)])
    assert run("--fix")[0] == 0
    assert stored(fork) == [(6, "own"), (7, "two"), (8, "three")]


def test_a_forks_own_messages_that_were_lost_are_a_loss() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    fork = make_fork(session, 2)
    put(fork, make_message("own", entry_id="e1"))
    base_redis.state().delete(PENDING())
    code, report = run()
    assert (code, [(f["session_id"], f["entry_id"], f["first"]) for f in report["findings"]]) == (1, [(fork, "e1", 3)])


def test_turns_that_name_what_is_nowhere() -> None:
    session, other = make_session(), make_session()
    for one in (session, other):
        put(one, *[make_message(f"m{n}", entry_id=f"e{n}") for n in range(1, 4)])
    make_turn(session)
    make_turn(session, target_seq=0)
    assert told() == (0, [])  # queued is there
    drain()
    assert told() == (0, [])
    make_turn(session, at_seq=3, target_seq=77)
    make_turn(session, at_seq=3, kind="compact", entry_id="nowhere")
    make_turn(session, at_seq=3, target_pk=owner(other).pk)
    assert told() == (
        1,
        [
            ("branch_broken", "navigate after 3: its target, number 77, is nowhere"),
            ("branch_broken", "compact after 3: the entry written with it is nowhere"),
            ("branch_broken", "navigate after 3: its target is of a session that this one was not forked from"),
        ],
    )
    assert run("--fix")[0] == 1  # what a path should be is for people to say


def test_a_forks_turn_leads_into_what_it_shares() -> None:
    session = make_session()
    append(session, "a", "b", "c")
    drain()
    fork = make_fork(session, 3)
    make_turn(fork, target_pk=owner(session).pk, target_seq=2)
    assert told() == (0, [])


def test_a_tree_that_agents_make_has_nothing_to_tell() -> None:
    session = make_session()
    put(session, *[make_message(f"m{n}", entry_id=f"e{n}") for n in range(1, 8)])
    assert told() == (0, [])
    fork = branching.fork(caller=ALICE, session_id=session, entry_id="e4", new_session_id=f"{session}-f")
    assert told() == (0, [])
    branching.navigate(caller=ALICE, session_id=session, entry_id="e2", summary="what the other branch came to")
    append(session, "after the turn")
    assert told() == (0, [])
    branching.compact(caller=ALICE, session_id=session, keep=1)
    append(f"{session}-f", "in the fork")
    branching.compact(caller=ALICE, session_id=f"{session}-f", keep=2)
    append(f"{session}-f", "after it")
    assert told() == (0, [])
    drain()
    assert told() == (0, [])
    assert run("--fix")[0] == 0
    assert fork is not None
