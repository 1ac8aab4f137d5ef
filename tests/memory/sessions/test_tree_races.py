"""A conversation's path is changed by two at once, while others write, and by processes that die in the middle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import OperationalError, connection

from config.base.errors import DomainError
from memory.sessions import branching, drain, reopen, restructuring, selectors
from memory.sessions.direct import append_past_redis
from memory.sessions.entries import Entry, prepare
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionBranch
from tests.memory.sessions.dying import dies_at
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    drain_everything,
    let_expire,
    make_message,
    owner,
    put,
    stored,
)
from tests.memory.sessions.talks import all_pages, assert_clean, at_once, make_talk, none_failed, parents, said

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS = 8
TURNS = 6


def move(session: str, entry_id: str, summary: str | None = None) -> Callable[[], branching.Moved]:
    return lambda: branching.navigate(caller=ALICE, session_id=session, entry_id=entry_id, summary=summary)


def condense(session: str, keep: int, entry_id: str | None = None) -> Callable[[], branching.Compacted]:
    return lambda: branching.compact(caller=ALICE, session_id=session, keep=keep, entry_id=entry_id)


def writer(session: str, number: int) -> Callable[[], None]:
    def write() -> None:
        for turn in range(TURNS):
            durability = "sync" if turn % 3 == 2 else "async"
            put(
                session,
                make_message(f"{number}.{turn}.a", entry_id=f"w{number}-{turn}-a" if number % 2 else None),
                make_message(f"{number}.{turn}.b", "assistant"),
                durability=durability,
            )

    return write


def written() -> set[str]:
    return {f"{number}.{turn}.{part}" for number in range(WRITERS) for turn in range(TURNS) for part in "ab"}


def assert_adjacent(contents: list[str]) -> None:
    """What was put together stands together, and each writer's turns are in order."""
    mine = [content for content in contents if content.count(".") == 2]
    for place in range(0, len(mine), 2):
        assert mine[place].endswith(".a")
        assert mine[place + 1] == mine[place].removesuffix("a") + "b"
    for number in range(WRITERS):
        turns = [int(content.split(".")[1]) for content in mine if content.startswith(f"{number}.")]
        assert turns == sorted(turns)


def test_two_moves_at_once_leave_the_head_at_one_of_the_targets() -> None:
    session, (a, b, c, d) = make_talk("a", "b", "c", "d")
    for _ in range(8):
        none_failed(at_once(move(session, a), move(session, b)))
        assert said(session) in (["a"], ["a", "b"])
        none_failed(at_once(move(session, c), move(session, d, "to d")))
        # One after the other: the summary follows d, whichever came last.
        assert said(session) in (["a", "b", "c"], ["a", "b", "c", "d", "to d"])
    assert said(session, limit=100) == said(session)
    let_expire(session)
    assert said(session, limit=100) == said(session)
    follows = {
        (row.parent_entry_id, row.entry_type) for row in AgentMessage.objects.filter(entry_type="branch_summary")
    }
    assert follows == {(d, "branch_summary")}
    assert_clean(session)


def test_a_move_while_others_write_puts_each_message_on_one_branch(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 25
    session, (a, b, _c) = make_talk("a", "b", "c")
    moves = [move(session, a, "left for a"), move(session, b)]
    none_failed(at_once(*(writer(session, number) for number in range(WRITERS)), *moves))
    drain_everything()
    rows = list(AgentMessage.objects.filter(session_row_id=owner(session).pk).order_by("seq"))
    assert {row.content for row in rows} == {"a", "b", "c", "left for a"} | written()
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    # Each follows the one before it, but the first after a move; a batch is never torn.
    ids = {row.entry_id: row for row in rows}
    previous = ""
    turned: list[str] = []
    for row in rows:
        if row.parent_entry_id != previous:
            assert not row.content.endswith(".b")
            turned.append(ids[row.parent_entry_id].content)
        previous = row.entry_id
    assert sorted(turned) in (["a"], ["a", "b"])  # nothing may have been written after the last move
    # What is shown is the chain of parents from the head, in Redis and in the database.
    head = rows[-1]
    if not SessionBranch.objects.filter(session_row_id=owner(session).pk, at_seq__gte=head.seq).exists():
        chain = []
        at = head
        while at:
            chain.append(at.content)
            at = ids.get(at.parent_entry_id)  # type: ignore[assignment]
        assert [m.content for m in all_pages(session, 7)] == chain[::-1]
        let_expire(session)
        assert [m.content for m in all_pages(session, 7)] == chain[::-1]
    assert_adjacent([row.content for row in rows])
    assert MessageDeadLetter.objects.count() == 0
    assert_clean(session)


def test_who_reads_while_the_head_moves_sees_one_path_or_the_other() -> None:
    session, ids = make_talk(*"abcdef")
    allowed = [["a", "b"], ["a", "b", "c", "d"], [*"abcdef"]]

    def mover() -> None:
        for n in range(12):
            branching.navigate(caller=ALICE, session_id=session, entry_id=ids[(1, 3, 5)[n % 3]])

    def reader(limit: int | None, view: str) -> Callable[[], list[list[str]]]:
        return lambda: [said(session, view, limit) for _ in range(30)]

    readers = [reader(None, "active"), reader(100, "active"), reader(100, "full")]
    _, _, *reads = none_failed(at_once(mover, mover, *readers))
    assert [read for some in reads for read in some if read not in allowed] == []
    assert_clean(session)


def test_of_two_compactions_at_once_the_second_finds_what_is_left() -> None:
    session, _ = make_talk(*"abcdefghij")
    done = none_failed(at_once(condense(session, 3), condense(session, 3)))
    assert sorted(one.covered for one in done) == [0, 7]
    other, _ = make_talk(*"abcdefghij")
    done = none_failed(at_once(condense(other, 3), condense(other, 2)))
    covered = [one.covered for one in done]
    assert covered in ([7, 1], [0, 8])
    for made, kept in ((session, 3), (other, 2)):
        assert said(made)[1:] == [*"abcdefghij"][-kept:]
        let_expire(made)
        assert said(made)[1:] == [*"abcdefghij"][-kept:]
    assert_clean(session, other)


def test_a_compaction_while_others_write_hides_nothing_that_it_does_not_cover() -> None:
    session, _ = make_talk(*(f"old {n}" for n in range(10)))
    works = [writer(session, number) for number in range(WRITERS)]
    *_, one, two = none_failed(at_once(*works, condense(session, 4), condense(session, 4)))
    drain_everything()
    full = [message.content for message in all_pages(session, 50, "full")]
    assert [content for content in full if content.count(".") == 2 or content.startswith("old")] == [
        content for _, content in stored(session) if content.count(".") == 2 or content.startswith("old")
    ]
    assert_adjacent(full)
    shown = all_pages(session, 9)
    last = max((made.entry for made in (one, two) if made.entry), key=lambda entry: entry.seq)
    assert shown[0].entry_id == last.entry_id
    assert len(shown) - 1 == 10 + len(written()) - one.covered - two.covered
    assert [m.content for m in shown[1:]] == [c for c in full if c.count(".") == 2 or c.startswith("old")][
        -len(shown) + 1 :
    ]
    assert_clean(session)


def test_a_fork_while_its_source_moves_and_grows_shares_one_of_its_paths() -> None:
    session, (a, _b, c) = make_talk("a", "b", "c")

    def fork() -> str:
        return branching.fork(caller=ALICE, session_id=session).owner.session_id

    works = [writer(session, number) for number in range(4)]
    *_, first, second = none_failed(at_once(*works, move(session, a), move(session, c), fork, fork))
    forks = [first, second]
    before = {made: [m.content for m in all_pages(made, 50)] for made in forks}
    shown = {made: said(made) for made in forks}
    drain_everything()
    for made in forks:
        let_expire(made)
        assert [m.content for m in all_pages(made, 50)] == before[made]
        assert said(made) == shown[made] == before[made][-20:]
        assert_adjacent(before[made])
        ids = {row.entry_id: row for row in AgentMessage.objects.all()}
        at = ids.get(AgentSession.objects.get(session_id=made).forked_from)
        chain = []
        while at:
            chain.append(at.content)
            at = ids.get(at.parent_entry_id)
        assert before[made] == chain[::-1]
    assert_clean(session, *forks)


def test_a_message_committed_ahead_of_a_queued_one_does_not_hide_it_from_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time: nothing is committed within the change")
    session, _ = make_talk("a")
    drain_everything()
    real = restructuring._commit_queued

    def writes() -> None:
        append(session, "queued")
        append(session, "committed", durability="sync")

    def meanwhile(which: Any) -> None:
        real(which)
        none_failed(at_once(writes))

    with monkeypatch.context() as patch:
        patch.setattr(restructuring, "_commit_queued", meanwhile)
        made = branching.fork(caller=ALICE, session_id=session).owner.session_id
    assert said(made) == ["a", "queued", "committed"]
    assert said(made, limit=100) == said(made)
    append(made, "mine")
    drain_everything()
    let_expire(made)
    assert said(made) == ["a", "queued", "committed", "mine"]
    assert parents(made) == {"mine": "committed"}
    assert_clean(session, made)


def test_two_forks_with_one_new_id_are_one_session() -> None:
    session, (a, b) = make_talk("a", "b")
    other, (x,) = make_talk("x")

    def fork(source: str, entry_id: str, name: str) -> Callable[[], branching.Forked]:
        return lambda: branching.fork(caller=ALICE, session_id=source, entry_id=entry_id, new_session_id=name)

    for n in range(5):
        name = f"one-of-two-forks-{n}"
        done = none_failed(at_once(fork(session, b, name), fork(session, b, name)))
        assert sorted(one.created for one in done) == [False, True]
        assert done[0].owner.pk == done[1].owner.pk
        assert said(name) == ["a", "b"]
        name = f"of-two-sources-{n:04}"
        answers = at_once(fork(session, a, name), fork(other, x, name))
        failed = [answer for answer in answers if isinstance(answer, DomainError)]
        assert [error.code for error in failed] == ["SESSION_CONFLICT"]
        assert said(name) in (["a"], ["x"])
    assert_clean(session, other)


STEPS = [
    (restructuring, "_hold", False), (restructuring, "_hold", True), (restructuring, "_commit_queued", True),
    (restructuring, "tree_of", True), (restructuring, "reopen", False), (reopen, "locked", True),
    (reopen, "_open", False), (reopen, "_open", True),
]  # fmt: skip
FIRST_COMMITTED = 4


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_process_killed_within_a_move_has_done_it_or_not(step: int) -> None:
    session, (_a, b, _c) = make_talk("a", "b", "c")
    place, name, after = STEPS[step]
    work = move(session, b, "left")
    assert dies_at(work, place, name, after=after)
    moved = step >= FIRST_COMMITTED
    assert said(session) == (["a", "b", "left"] if moved else ["a", "b", "c"])
    (receipt,) = append(session, "d")
    assert receipt.seq == (5 if moved else 4)
    assert parents(session)["d"] == ("left" if moved else "c")
    work()  # the caller, who never heard of it, asks again; others went on meanwhile
    assert said(session) == ["a", "b", "left"]
    assert_clean(session)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_process_killed_within_a_compaction_has_done_it_or_not(step: int) -> None:
    session, _ = make_talk("a", "b", "c", "d")
    place, name, after = STEPS[step]
    work = condense(session, 1, "compact-of-alice")
    assert dies_at(work, place, name, after=after)
    assert (len(said(session)) == 2) == (step >= FIRST_COMMITTED)
    done = work()  # a repeat answers the first
    assert (done.covered, done.entry.seq if done.entry else 0) == (3, 5)
    assert said(session)[1:] == ["d"]
    append(session, "e")
    assert parents(session)["e"] == said(session)[0]
    assert SessionBranch.objects.count() == 1
    assert_clean(session)


@pytest.mark.parametrize(
    ("place", "name", "after"),
    [
        (restructuring, "_commit_queued", True), (branching, "remember", False), (branching, "reopen", False),
        (reopen, "_open", False), (reopen, "_open", True),
    ],
)  # fmt: skip
def test_a_process_killed_within_a_fork_has_made_it_or_not(place: Any, name: str, after: bool) -> None:
    session, (_a, b, _c) = make_talk("a", "b", "c")
    new = f"fork-{uuid.uuid4().hex}"

    def work() -> branching.Forked:
        return branching.fork(caller=ALICE, session_id=session, entry_id=b, new_session_id=new)

    assert dies_at(work, place, name, after=after)
    assert work().created == (name == "_commit_queued")
    assert said(new) == ["a", "b"]
    append(new, "d")
    assert said(session) == ["a", "b", "c"]
    assert_clean(session, new)


def test_a_change_that_is_rolled_back_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = make_talk("a", "b", "c")
    real = SessionBranch.objects.create
    answers = iter([OperationalError(1213, "Deadlock"), None])

    def stumbles(**fields: Any) -> Any:
        error = next(answers)
        if error:
            raise error
        return real(**fields)

    with monkeypatch.context() as patch:
        patch.setattr(SessionBranch.objects, "create", stumbles)
        done = condense(session, 1)()
    assert done.entry is not None
    assert done.entry.seq == 4
    assert append(session, "d")[0].seq == 5
    assert_clean(session)


def test_who_makes_the_state_anew_while_another_appends_past_redis_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One process sees Redis away and another does not: what the first commits is in what the second makes."""
    session, _ = make_talk("a")
    drain.drain()
    owner_ = owner(session)
    reopen.take_out_of_use(owner_)
    real = reopen._open
    late: list[Any] = []

    def meanwhile(*args: Any) -> Any:
        if not late:
            late.extend(append_past_redis(owner_, prepare([make_message("b")])))
            reopen.reattach()
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(reopen, "_open", meanwhile)
        assert said(session) == ["a", "b"]
    (receipt,) = append(session, "c")
    assert receipt.seq > late[0].seq
    assert said(session) == ["a", "b", "c"]
    assert_clean(session)


def test_a_compaction_that_keeps_a_whole_window_is_followed_all_the_same() -> None:
    session, _ = make_talk(*(f"m{n}" for n in range(25)))
    done = branching.compact(caller=ALICE, session_id=session)
    assert done.covered == 5
    assert done.entry is not None
    append(session, "next")
    assert parents(session)["next"] == done.entry.content
    assert said(session) == [*(f"m{n}" for n in range(6, 25)), "next"]
    assert said(session, limit=100)[0] == done.entry.content


def test_what_is_committed_between_two_looks_of_a_page_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as not in MySQL yet, and then as there already: whoever moves the head commits what is queued."""
    session, ids = make_talk(*"abcdef")
    not_in_mysql = selectors.not_in_mysql

    def committed_first(entries: Sequence[Entry]) -> list[Entry]:
        branching.navigate(caller=ALICE, session_id=session, entry_id=ids[3])
        return not_in_mysql(entries)

    monkeypatch.setattr(selectors, "not_in_mysql", committed_first)
    assert said(session, limit=100) == [*"abcd"]
