"""Anything that may happen to conversations, in any order: the model, Redis and the database agree.

Each round opens sessions and lets writers, forks, moves, compactions, losses, outages and dying processes loose on
them; after each step what is read is what the model says, and at the end of a round the database holds each entry once.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from memory.sessions import branching, drain, persist, reopen, restructuring, selectors, services, treeview
from memory.sessions.findings import FAULTS, LOSSES, POSSIBLE_LOSS
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.reconcile import reconcile
from tests.memory.sessions.dying import dies_at
from tests.memory.sessions.helpers import ALICE, drain_everything, empty_redis, owner
from tests.memory.sessions.machine import (
    AWAY,
    CALM,
    LIMITS,
    MODES,
    MOST_TALKS,
    PLACES,
    WHICH,
    WINDOW,
    Death,
    Writing,
    stored_ids,
)
from tests.memory.sessions.model import Talk, path_to, read_of
from tests.memory.sessions.talks import redis_away

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 50

DRAIN_DEATHS: dict[str, Death] = {
    "taken": (drain, "persist", False),
    "written": (persist, "insert_entries", True),
    "committed": (drain, "persist", True),
    "settled": (drain._Queue, "settle", True),
}
MOVE_DEATHS: dict[str, Death] = {
    "before holding": (restructuring, "_hold", False),
    "holding": (restructuring, "_hold", True),
    "queue committed": (restructuring, "_commit_queued", True),
    "path read": (restructuring, "tree_of", True),
    "committed": (restructuring, "reopen", False),
    "before opening": (reopen, "_open", False),
    "opened": (reopen, "_open", True),
}


class Conversations(Writing):
    rounds = 0

    # --- the tree --------------------------------------------------------------------------------------------------

    @rule(which=WHICH, place=PLACES, summary=st.sampled_from([None, None, "what came of it", True]), mode=MODES)
    def navigate(self, which: int, place: int, summary: str | bool | None, mode: str) -> None:
        talk = self.talk(which)
        targets = talk.reachable()
        if not targets:
            return self.refused(
                "SESSION_DELETED" if talk.deleted else "ENTRY_NOT_FOUND",
                lambda: branching.navigate(caller=ALICE, session_id=talk.session_id, entry_id="nowhere"),
            )
        target = targets[place % len(targets)]
        text = summary if isinstance(summary, str) else None

        def work() -> branching.Moved:
            with redis_away() if mode == AWAY else nullcontext():
                return branching.navigate(
                    caller=ALICE, session_id=talk.session_id, entry_id=target.entry_id, summary=text,
                    summarised=summary is True,
                )  # fmt: skip

        if talk.deleted:
            return self.refused("SESSION_DELETED", work)
        if mode == AWAY and target in talk.own and target.entry_id not in stored_ids(talk.pk):
            with pytest.raises(RedisUnavailable):
                work()
            return
        moved = work()
        talk.gaps = talk.gaps or mode == AWAY
        self.moved(talk, target, moved, text, exact=mode == CALM)

    @rule(which=WHICH, keep=st.integers(0, WINDOW + 2), mode=MODES)
    def compact(self, which: int, keep: int, mode: str) -> None:
        talk = self.talk(which)

        def work() -> branching.Compacted:
            with redis_away() if mode == AWAY else nullcontext():
                return branching.compact(caller=ALICE, session_id=talk.session_id, keep=keep)

        if talk.deleted:
            return self.refused("SESSION_DELETED", work)
        if mode == AWAY:
            try:
                done = work()
            except RedisUnavailable:
                return  # what it would cover may not all be in the database
            talk.gaps = True
            if done.covered:
                self.compaction_done(talk, done, None, exact=False)
            return
        done = work()
        if not talk.compacted(keep)[0]:
            assert (done.covered, done.entry) == (0, None)
        else:
            self.compaction_done(talk, done, keep)

    @precondition(lambda self: len(self.talks) < MOST_TALKS)
    @rule(which=WHICH, place=st.one_of(st.none(), PLACES), mode=MODES)
    def fork(self, which: int, place: int | None, mode: str) -> None:
        talk = self.talk(which)
        targets = talk.reachable()
        target = None if place is None or not targets else targets[place % len(targets)]
        name = self.new_name()

        def work() -> branching.Forked:
            with redis_away() if mode == AWAY else nullcontext():
                return branching.fork(
                    caller=ALICE, session_id=talk.session_id, entry_id=target.entry_id if target else None,
                    new_session_id=name,
                )  # fmt: skip

        if talk.deleted:
            return self.refused("SESSION_DELETED", work)
        if not targets and mode == CALM:
            return self.refused("EMPTY_SESSION", work)
        if mode == AWAY:
            there = stored_ids(talk.pk)
            path = [node for node in path_to(talk.head) if node not in talk.own or node.entry_id in there]
            if (target in talk.own and target.entry_id not in there) or (target is None and not path):
                with pytest.raises(RedisUnavailable):
                    work()
                return
            self.forked(talk, work(), target or path[-1])
        else:
            self.forked(talk, work(), target or talk.head)

    @rule(
        which=WHICH,
        death=st.sampled_from(list(MOVE_DEATHS)),
        place=PLACES,
        keep=st.integers(0, 3),
        what=st.booleans(),
    )
    def restructure_and_die(self, which: int, death: str, place: int, keep: int, what: bool) -> None:
        talk = self.talk(which)
        targets = [node for node in talk.reachable() if node is not talk.head]
        if talk.deleted or not targets:
            return
        target = targets[place % len(targets)]

        def move() -> Any:
            return branching.navigate(
                caller=ALICE, session_id=talk.session_id, entry_id=target.entry_id, summary="left"
            )

        def condense() -> Any:
            return branching.compact(caller=ALICE, session_id=talk.session_id, keep=keep, entry_id=new_id)

        new_id = uuid.uuid4().hex
        work = move if what else condense
        place_, name, after = MOVE_DEATHS[death]
        dies_at(work, place_, name, after=after)  # or lives, where there is nothing to condense
        done = work()  # the client asks again
        if what:
            self.moved(talk, target, done, "left")
        elif done.covered:
            self.compaction_done(talk, done, keep)
        else:
            assert talk.compacted(keep)[0] == 0

    # --- draining and losses ---------------------------------------------------------------------------------------

    @rule(count=st.integers(0, 6))
    def drain_some(self, count: int) -> None:
        """count: 0 for all that is queued."""
        if count:
            drain.drain_batch(entries=count, idle_ms=0)
        else:
            drain_everything()
            assert base_redis.state().xlen(PENDING()) == 0

    @rule(death=st.sampled_from(list(DRAIN_DEATHS)), count=st.integers(1, 6))
    def drain_and_die(self, death: str, count: int) -> None:
        place, name, after = DRAIN_DEATHS[death]
        dies_at(lambda: drain.drain_batch(entries=count, idle_ms=0), place, name, after=after)

    @rule(which=WHICH, keys=st.sampled_from([(0, 1, 2), (0, 1, 2), (0,), (1,), (2,), (1, 2), "scripts", "everything"]))
    def lose(self, which: int, keys: Sequence[int] | str) -> None:
        """Some of a session's keys, the server's cache of scripts, or (after a drain) all that Redis has."""
        if keys == "scripts":
            base_redis.state().script_flush()
        elif keys == "everything":
            drain_everything()
            empty_redis()
            for talk in self.talks:
                talk.gaps = talk.emptied = True
                talk.slots = {}
        else:
            talk = self.talk(which)
            base_redis.state().delete(*[owner(talk.session_id).keys[int(n)] for n in keys])
            if 0 in keys:
                talk.slots = {}

    # --- the rest --------------------------------------------------------------------------------------------------

    @rule(which=WHICH, name=st.sampled_from(["a", "b"]), value=st.sampled_from([1, "二", None, [True]]))
    def set_slot(self, which: int, name: str, value: Any) -> None:
        talk = self.talk(which)
        if talk.deleted:
            return
        services.change_context(caller=ALICE, session_id=talk.session_id, slots={name: value})
        talk.slots[name] = value
        if value is None:
            del talk.slots[name]

    @precondition(lambda self: len(self.talks) > 2)
    @rule(which=WHICH, mode=MODES)
    def delete(self, which: int, mode: str) -> None:
        talk = self.talk(which)
        with redis_away() if mode == AWAY else nullcontext():
            services.delete_session(caller=ALICE, session_id=talk.session_id)
        talk.deleted = True

    @rule(which=WHICH, limit=st.sampled_from(LIMITS[1:]))
    def read_every_page(self, which: int, limit: int) -> None:
        self.check_pages(self.talk(which), limit)

    @rule(which=WHICH)
    def read_without_redis(self, which: int) -> None:
        """What is not drained is absent, and nothing else is."""
        talk = self.talk(which)
        if talk.deleted:
            return
        there = {node.seq for node in path_to(talk.floor)}
        there |= set(AgentMessage.objects.filter(session_row_id=talk.pk).values_list("seq", flat=True))
        with redis_away():
            try:
                page = selectors.read_messages(caller=ALICE, session_id=talk.session_id, limit=200, view="full")
            except RedisUnavailable:
                assert not there
                return
        got = [read_of(message) for message in page.messages]
        if talk.floor is None:
            assert got == [read for read in talk.full() if read[1] in there]

    # --- what is always so -----------------------------------------------------------------------------------------

    def check_pages(self, talk: Talk, limit: int) -> None:
        if talk.deleted:
            return
        for view, whole in (("active", talk.active()), ("full", talk.full())):
            before: int | None = None
            found: list[Any] = []
            while True:
                wanted, following = talk.page(limit, before, view, WINDOW)
                page = selectors.read_messages(
                    caller=ALICE, session_id=talk.session_id, limit=limit, before_seq=before, view=view
                )
                assert [read_of(message) for message in page.messages] == wanted, (view, limit, before)
                assert page.next == following, (view, limit, before)
                found = [*wanted, *found]
                before = following
                if before is None:
                    break
            assert found == whole

    @invariant()
    def reads_agree(self) -> None:
        talk, self.touched = self.touched, None
        if talk is None:
            return
        if talk.deleted:
            self.refused("SESSION_DELETED", lambda: selectors.read_messages(caller=ALICE, session_id=talk.session_id))
            return
        page = selectors.read_messages(caller=ALICE, session_id=talk.session_id)
        assert [read_of(message) for message in page.messages] == talk.window(WINDOW)
        self.turn += 1
        limit = LIMITS[self.turn % len(LIMITS)]
        view = ("full", "active")[self.turn % 2]
        page = selectors.read_messages(caller=ALICE, session_id=talk.session_id, limit=limit, view=view)
        assert [read_of(message) for message in page.messages] == talk.page(limit, None, view, WINDOW)[0], (view, limit)
        assert self.slots_of(talk) == talk.slots

    def teardown(self) -> None:
        base_redis.breaker.reset()
        if sys.exc_info()[0] is not None:
            return  # a step has failed: what it left is not to hide why
        drain_everything()
        assert base_redis.state().xlen(PENDING()) == 0
        for place, talk in enumerate(self.talks):
            self.check_database(talk)
            if place % 2:
                base_redis.state().delete(*owner(talk.session_id).keys)
            self.check_pages(talk, 50)
        self.check_pages(self.talks[0], WINDOW)
        names = [talk.session_id for talk in self.talks]
        assert not MessageDeadLetter.objects.filter(session_id__in=names).exists()
        rows = AgentSession.objects.filter(session_id__in=names).order_by("pk")
        allowed = {POSSIBLE_LOSS} if any(talk.emptied for talk in self.talks) else set()
        report = reconcile(rows=rows, whole=False, pause=0)
        assert {finding.kind for finding in report.findings if finding.kind in {*LOSSES, *FAULTS}} <= allowed
        type(self).rounds += 1

    def check_database(self, talk: Talk) -> None:
        """Each entry once, byte for byte, after the one that it follows."""
        rows = AgentMessage.objects.filter(session_row_id=talk.pk).order_by("seq")
        got = [(row.entry_id, row.seq, row.role, row.content, row.payload, row.entry_type) for row in rows]
        assert got == [node.read for node in talk.own]
        parents = {row.entry_id: row.parent_entry_id for row in rows}
        for node in talk.own:
            before = node.parent.entry_id if node.parent else ""
            if node.exact:
                assert parents[node.entry_id] == before
            else:
                assert parents[node.entry_id] in {"", *(one.entry_id for one in path_to(node.parent))}
        if not talk.deleted:
            found, after = [], 0
            while True:
                page = treeview.read_tree(caller=ALICE, session_id=talk.session_id, limit=70, after_seq=after)
                found += page.items
                if page.next is None:
                    break
                after = page.next
            shared = [(node.entry_id, node.seq) for node in path_to(talk.floor)]
            assert [(one.entry_id, one.seq) for one in found] == [*shared, *((n.entry_id, n.seq) for n in talk.own)]
            leading = [(node.entry_id, node.seq) for node in path_to(talk.head)]
            assert [(one.entry_id, one.seq) for one in found if one.active] == leading
            assert page.head == (leading[-1] if leading else None)


def test_whatever_happens_the_model_and_the_database_agree(settings: Any) -> None:
    settings.SESSION_WINDOWS = dict.fromkeys(settings.SESSION_WINDOWS, WINDOW)
    settings.SESSION_SEQ_LEASE = 7
    Conversations.rounds = 0
    # SQLite has one writer at a time: fewer and shorter rounds tell as much there.
    count, steps = (ROUNDS, 30) if connection.vendor == "mysql" else (ROUNDS // 2, 15)
    run_state_machine_as_test(Conversations, settings=rounds(count, steps))
    assert Conversations.rounds >= count


def rounds(count: int, steps: int) -> settings:
    """A failure is printed with all its steps and a blob that repeats it. It is not made shorter: threads do not run
    the same way twice, and each try costs seconds. `phases` with Phase.shrink does it where one wants that."""
    return settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
