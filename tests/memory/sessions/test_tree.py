"""Conversations branch: the head is moved, what lies behind is condensed, a new session goes on from an entry."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from config.base.errors import DomainError
from memory.sessions import branching, selectors, services, treeview
from memory.sessions.drain import drain
from memory.sessions.entries import QUEUED
from memory.sessions.models import AgentMessage, SessionBranch
from tests.memory.sessions.helpers import (
    ALICE,
    BOB,
    append,
    empty_redis,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
)
from tests.memory.sessions.talks import all_pages, assert_clean, make_talk, parents, redis_away, said

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_message_follows_the_one_before_it() -> None:
    session, _ = make_talk("a", "b", "c")
    append(session, "d")
    append(session, "e", "f", durability="sync")
    assert parents(session) == {"a": "", "b": "a", "c": "b", "d": "c", "e": "d", "f": "e"}


def test_the_head_moves_back_and_the_next_message_follows_it() -> None:
    session, (_a, b, _c, d) = make_talk("a", "b", "c", "d")
    moved = branching.navigate(caller=ALICE, session_id=session, entry_id=b)
    assert (moved.entry_id, moved.seq, moved.summary) == (b, 2, None)
    assert said(session) == ["a", "b"]
    (receipt,) = append(session, "e")
    assert (receipt.seq, receipt.state) == (5, QUEUED)
    assert said(session) == ["a", "b", "e"]
    assert said(session, limit=100) == ["a", "b", "e"]
    assert parents(session)["e"] == "b"
    branching.navigate(caller=ALICE, session_id=session, entry_id=d)
    assert said(session) == ["a", "b", "c", "d"]
    append(session, "f")
    branching.navigate(caller=ALICE, session_id=session, entry_id=receipt.entry_id)
    assert said(session) == ["a", "b", "e"]
    assert AgentMessage.objects.count() == 6
    assert_clean(session)


def test_a_path_outlives_redis() -> None:
    session, (a, _b, _c) = make_talk("a", "b", "c")
    branching.navigate(caller=ALICE, session_id=session, entry_id=a)
    append(session, "d")
    drain()
    let_expire(session)
    assert said(session) == ["a", "d"]
    empty_redis()
    assert said(session) == ["a", "d"]
    (receipt,) = append(session, "e")
    assert said(session) == ["a", "d", "e"]
    assert receipt.seq == 1001


def test_moving_to_where_the_head_is_changes_nothing() -> None:
    session, (a, b) = make_talk("a", "b")
    branching.navigate(caller=ALICE, session_id=session, entry_id=b)
    assert SessionBranch.objects.count() == 0
    branching.navigate(caller=ALICE, session_id=session, entry_id=a)
    branching.navigate(caller=ALICE, session_id=session, entry_id=a)
    assert SessionBranch.objects.count() == 1


def test_a_branch_that_is_left_may_leave_its_summary() -> None:
    session, (_a, b) = make_talk("我想买一只基金", "好的，请问金额？")
    append(session, "先买 50 万元 F001，三年不动")
    moved = branching.navigate(caller=ALICE, session_id=session, entry_id=b, summarised=True)
    assert moved.summary is not None
    assert moved.summary.entry_type == "branch_summary"
    assert moved.summary.content == "user: 先买 50 万元 F001，三年不动"
    assert said(session) == ["我想买一只基金", "好的，请问金额？", moved.summary.content]
    again = branching.navigate(caller=ALICE, session_id=session, entry_id=b, summarised=True)
    assert (again.entry_id, again.seq) == (moved.entry_id, moved.seq)
    append(session, "改成 20 万")
    assert [r.seq for r in append(session, "x")] == [6]
    rows = AgentMessage.objects.filter(entry_type="branch_summary")
    drain()
    assert [(row.parent_entry_id, row.role, row.payload) for row in rows] == [
        (b, "system", {"left_entry_id": entry_at(session, 3)})
    ]
    assert_clean(session)


def entry_at(session: str, seq: int) -> str:
    return AgentMessage.objects.get(session_row_id=owner(session).pk, seq=seq).entry_id


def test_condensing_keeps_the_last_messages_and_hides_the_rest() -> None:
    session, made = make_talk(*"abcdefghij")
    done = branching.compact(caller=ALICE, session_id=session, keep=3, summary="what a to g said")
    assert (done.covered, done.first_kept_entry_id) == (7, made[7])
    assert done.entry is not None
    assert (done.entry.seq, done.entry.role) == (11, "system")
    assert said(session) == ["what a to g said", "h", "i", "j"]
    append(session, "k", "l")
    assert said(session) == ["what a to g said", "h", "i", "j", "k", "l"]
    assert said(session, limit=100) == said(session)
    assert said(session, "full") == [*"abcdefghij", "what a to g said", "k", "l"]
    for limit in (1, 2, 3, 5, 6, 7):
        assert [m.content for m in all_pages(session, limit)] == said(session)
        assert [m.content for m in all_pages(session, limit, "full")] == said(session, "full")
    assert parents(session)["k"] == "what a to g said"
    assert parents(session)["what a to g said"] == "j"
    let_expire(session)
    assert said(session) == ["what a to g said", "h", "i", "j", "k", "l"]
    assert selectors.get_context(caller=ALICE, session_id=session).summary == "what a to g said"
    assert_clean(session)


def test_condensing_again_takes_the_former_one_in() -> None:
    session, made = make_talk(*"abcdefgh")
    branching.compact(caller=ALICE, session_id=session, keep=2, summary="S1")
    append(session, "i", "j")
    second = branching.compact(caller=ALICE, session_id=session, keep=3)
    assert second.covered == 1
    assert said(session) == [second.entry.content, "h", "i", "j"]  # type: ignore[union-attr]
    assert second.entry is not None
    assert second.entry.content.startswith("S1")
    assert branching.compact(caller=ALICE, session_id=session, keep=3).covered == 0
    assert said(session, "full") == [*"abcdefgh", "S1", "i", "j", second.entry.content]
    branching.navigate(caller=ALICE, session_id=session, entry_id=made[4])
    assert said(session) == [*"abcde"]
    branching.navigate(caller=ALICE, session_id=session, entry_id=second.entry.entry_id)
    assert said(session) == [second.entry.content, "h", "i", "j"]
    assert_clean(session)


def test_a_repeated_compaction_answers_the_first() -> None:
    session, _ = make_talk(*"abcdef")
    first = branching.compact(caller=ALICE, session_id=session, keep=2, entry_id="compact-1")
    assert branching.compact(caller=ALICE, session_id=session, keep=2, entry_id="compact-1") == first
    assert SessionBranch.objects.count() == 1
    put(session, make_message("x", entry_id="mine"))
    with pytest.raises(DomainError) as refusal:
        branching.compact(caller=ALICE, session_id=session, keep=2, entry_id="mine")
    assert refusal.value.code == "ENTRY_CONFLICT"


def test_keep_none_at_all() -> None:
    session, _ = make_talk("我要赎回 10 万元", "收到")
    done = branching.compact(caller=ALICE, session_id=session, keep=0)
    assert said(session) == ["user: 我要赎回 10 万元\nassistant: 收到"] or said(session) == [done.entry.content]  # type: ignore[union-attr]
    append(session, "c")
    assert said(session) == [done.entry.content, "c"]  # type: ignore[union-attr]
    assert [m.content for m in all_pages(session, 1)] == said(session)
    assert_clean(session)


def test_a_fork_shares_and_copies_nothing() -> None:
    session, (_a, b, _c) = make_talk("a", "b", "c")
    forked = branching.fork(caller=ALICE, session_id=session, entry_id=b)
    new = forked.owner.session_id
    assert (forked.entry_id, forked.seq, forked.created) == (b, 2, True)
    assert AgentMessage.objects.count() == 3
    assert said(new) == ["a", "b"]
    (receipt,) = append(new, "d")
    assert receipt.seq == 3
    append(session, "e")
    assert said(new) == ["a", "b", "d"]
    assert said(session) == ["a", "b", "c", "e"]
    assert said(new, limit=100) == ["a", "b", "d"]
    assert [m.content for m in all_pages(new, 1)] == ["a", "b", "d"]
    assert parents(new) == {"d": "b"}
    let_expire(new)
    assert said(new) == ["a", "b", "d"]
    assert AgentMessage.objects.count() == 5
    assert_clean(session, new)


def test_forks_of_forks_and_moves_into_what_is_shared() -> None:
    session, (a, b, _c) = make_talk("a", "b", "c")
    one = branching.fork(caller=ALICE, session_id=session).owner.session_id
    (d, e) = (r.entry_id for r in append(one, "d", "e"))
    two = branching.fork(caller=ALICE, session_id=one, entry_id=d).owner.session_id
    append(two, "f")
    assert said(two) == ["a", "b", "c", "d", "f"]
    branching.navigate(caller=ALICE, session_id=two, entry_id=b)
    append(two, "g")
    assert said(two) == ["a", "b", "g"]
    three = branching.fork(caller=ALICE, session_id=two, entry_id=a).owner.session_id
    assert said(three) == ["a"]
    append(three, "h")
    assert said(three, limit=50) == ["a", "h"]
    with pytest.raises(DomainError) as refusal:
        branching.navigate(caller=ALICE, session_id=two, entry_id=e)
    assert refusal.value.code == "ENTRY_NOT_FOUND"
    for session_id in (session, one, two, three):
        let_expire(session_id)
    assert [said(one), said(two), said(three)] == [[*"abcde"], [*"abg"], [*"ah"]]
    assert_clean(session, one, two, three)


def test_a_fork_of_a_condensed_conversation_is_condensed() -> None:
    session, made = make_talk(*"abcdef")
    branching.compact(caller=ALICE, session_id=session, keep=2, summary="S")
    append(session, "g")
    new = branching.fork(caller=ALICE, session_id=session).owner.session_id
    assert said(new) == ["S", "e", "f", "g"]
    append(new, "h")
    assert said(new, "full") == [*"abcdef", "S", "g", "h"]
    old = branching.fork(caller=ALICE, session_id=session, entry_id=made[3]).owner.session_id
    assert said(old) == [*"abcd"]


def test_a_repeated_fork_answers_the_same_session() -> None:
    session, (a, b) = make_talk("a", "b")
    first = branching.fork(caller=ALICE, session_id=session, entry_id=a, new_session_id="fork-of-alice-0001")
    append("fork-of-alice-0001", "x")
    again = branching.fork(caller=ALICE, session_id=session, entry_id=a, new_session_id="fork-of-alice-0001")
    assert (again.created, again.owner.pk, again.seq) == (False, first.owner.pk, 1)
    with pytest.raises(DomainError) as refusal:
        branching.fork(caller=ALICE, session_id=session, entry_id=b, new_session_id="fork-of-alice-0001")
    assert refusal.value.code == "SESSION_CONFLICT"
    with pytest.raises(DomainError) as refusal:
        branching.fork(caller=BOB, session_id=session, entry_id=b)
    assert refusal.value.code == "NOT_OWNER"
    with pytest.raises(DomainError) as refusal:
        branching.fork(caller=ALICE, session_id=make_session())
    assert refusal.value.code == "EMPTY_SESSION"


@pytest.mark.parametrize("state", ["warm", "expired", "long", "redis away"])
def test_along_a_tree_an_entry_id_stands_for_one_entry(state: str) -> None:
    session = make_session()
    (shared,) = put(session, make_message("first", entry_id="e1"))
    if state == "long":
        append(session, *(f"m{n}" for n in range(200)))
        append(session, *(f"n{n}" for n in range(200)))
        put(session, *(make_message(f"o{n}", entry_id=f"o{n}") for n in range(10)))
    new = branching.fork(caller=ALICE, session_id=session).owner.session_id
    drain()
    if state == "expired":
        let_expire(new)
    with redis_away() if state == "redis away" else nullcontext():
        for durability in ("async", "sync"):
            (again,) = put(new, make_message("first", entry_id="e1"), durability=durability)
            assert (again.entry_id, again.seq) == ("e1", shared.seq)
            with pytest.raises(DomainError) as refusal:
                put(new, make_message("second", entry_id="e1"), durability=durability)
            assert refusal.value.code == "ENTRY_CONFLICT"
    assert said(new, limit=200)[-3:] == said(session, limit=200)[-3:]
    with pytest.raises(DomainError) as refusal:
        branching.compact(caller=ALICE, session_id=new, keep=0, entry_id="e1")
    assert refusal.value.code == "ENTRY_CONFLICT"
    # What the other session goes on to say is not of this tree.
    put(session, make_message("there", entry_id="e2"))
    put(new, make_message("here", entry_id="e2"))
    assert said(new, limit=200)[-1] == "here"


def test_a_compaction_is_repeated_with_the_same_wish_only() -> None:
    session, _ = make_talk(*"abcdef")
    first = branching.compact(caller=ALICE, session_id=session, keep=2, summary="S", entry_id="c1")
    assert branching.compact(caller=ALICE, session_id=session, keep=2, summary="S", entry_id="c1") == first
    assert branching.compact(caller=ALICE, session_id=session, entry_id="c1") == first
    for keep, summary in ((3, "S"), (2, "other")):
        with pytest.raises(DomainError) as refusal:
            branching.compact(caller=ALICE, session_id=session, keep=keep, summary=summary, entry_id="c1")
        assert refusal.value.code == "ENTRY_CONFLICT"


def test_a_large_message_is_whole_in_a_fork() -> None:
    session, _ = make_talk("x" * 40_000)
    new = branching.fork(caller=ALICE, session_id=session).owner.session_id
    append(new, "y" * 30_000)
    assert [len(text) for text in said(new)] == [40_000, 30_000]


def test_the_tree_lists_every_entry_of_every_branch() -> None:
    session, (a, b, c) = make_talk("a", "b", "c")
    branching.navigate(caller=ALICE, session_id=session, entry_id=a)
    (d,) = append(session, "d")
    page = treeview.read_tree(caller=ALICE, session_id=session)
    assert page.head == (d.entry_id, 4)
    assert [(n.entry_id, n.parent_entry_id, n.active) for n in page.items] == [
        (a, None, True), (b, a, False), (c, b, False), (d.entry_id, a, True),
    ]  # fmt: skip
    first = treeview.read_tree(caller=ALICE, session_id=session, limit=3)
    second = treeview.read_tree(caller=ALICE, session_id=session, limit=3, after_seq=first.next or 0)
    assert [n.seq for n in (*first.items, *second.items)] == [1, 2, 3, 4]
    assert second.next is None
    new = branching.fork(caller=ALICE, session_id=session, entry_id=b).owner.session_id
    append(new, "e")
    assert [(n.seq, n.session_id) for n in treeview.read_tree(caller=ALICE, session_id=new).items] == [
        (1, session), (2, session), (3, new),
    ]  # fmt: skip


def test_a_deleted_session_cannot_be_changed() -> None:
    session, (a, _b) = make_talk("a", "b")
    services.delete_session(caller=ALICE, session_id=session)
    for change in (
        lambda: branching.navigate(caller=ALICE, session_id=session, entry_id=a),
        lambda: branching.compact(caller=ALICE, session_id=session, keep=1),
        lambda: branching.fork(caller=ALICE, session_id=session, entry_id=a),
        lambda: treeview.read_tree(caller=ALICE, session_id=session),
    ):
        with pytest.raises(DomainError) as refusal:
            change()
        assert refusal.value.code == "SESSION_DELETED"
