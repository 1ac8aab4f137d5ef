"""The random test's machine: sessions, the model of each, and every way to put messages into them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.sessions import branching, drain, selectors, services
from memory.sessions.entries import COMMITTED, NewMessage
from memory.sessions.models import AgentMessage
from tests.memory.sessions.dying import dies_at
from tests.memory.sessions.helpers import ALICE, drain_everything, owner
from tests.memory.sessions.model import COMPACTION, SUMMARY, Node, Talk, path_to, read_of, shown_at
from tests.memory.sessions.talks import answers_lost, at_once, none_failed, redis_away

WINDOW = 6
MOST_TALKS = 5

LARGE = "x" * 17_000  # the window holds its head only
TEXTS = st.one_of(
    st.sampled_from(["", "hello", "您好，想买 30 万元的基金", "\x00\U0001f469\u200d\U0001f4bb\U00020000é"]),
    st.builds(lambda: LARGE),
    st.text(max_size=8),
)
PAYLOADS = st.sampled_from([None, None, None, {}, [], {"n": 2**70, "f": 0.1, "空": [None, True, ""]}, "s", 0])
ROLES = st.sampled_from(["user", "user", "assistant", "system", "tool"])
# How a message comes: with an id made for it, with one of a few that clients give (so that they come again, with the
# same content or another), or with one that was made before and is given back.
MADE = st.tuples(st.just("made"), ROLES, TEXTS, PAYLOADS)
GIVEN = st.tuples(st.integers(1, 12), st.sampled_from(["user", "tool"]), st.sampled_from(["same", "same", "other"]))
BACK = st.tuples(st.just("back"), st.integers(0, 50))
CALL = st.tuples(st.just("call"), st.integers(1, 9))
BATCHES = st.lists(st.one_of(MADE, MADE, GIVEN, BACK, CALL), min_size=1, max_size=4)
PLACES = st.integers(0, 1000)
WHICH = st.integers(0, 1000)
CALM, AWAY = "calm", "away"
MODES = st.sampled_from([CALM, CALM, CALM, AWAY])
DURABILITIES = st.sampled_from(["async", "sync"])
LIMITS = (1, 2, 3, WINDOW - 1, WINDOW, WINDOW + 1, 50)

# Steps at which a process may die: what it calls there, and whether it is done with that.
Death = tuple[Any, str, bool]
APPEND_DEATHS: dict[str, Death] = {
    "before redis": (services, "append_in_redis", False),
    "after redis": (services, "append_in_redis", True),
    "after the database": (services, "persist", True),
}


def stored_ids(pk: int) -> set[str]:
    return set(AgentMessage.objects.filter(session_row_id=pk).values_list("entry_id", flat=True))


class Writing(RuleBasedStateMachine):
    """Sessions, and all that puts messages into them. What each rule does goes into the model too."""

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex[:12]
        self.talks: list[Talk] = []
        self.touched: Talk | None = None
        self.turn = 0

    # --- helpers ---------------------------------------------------------------------------------------------------

    def talk(self, which: int) -> Talk:
        self.touched = self.talks[which % len(self.talks)]
        return self.touched

    def new_name(self) -> str:
        return f"talk-{self.name}-{len(self.talks)}"

    def messages(self, talk: Talk, batch: Sequence[tuple[Any, ...]]) -> list[NewMessage]:
        made: list[NewMessage] = []
        for kind, *rest in batch:
            if kind == "made":
                made.append(NewMessage(rest[0], rest[1], None, rest[2]))
            elif kind == "call":
                made.append(
                    NewMessage("assistant", "quote?", None, {"tool_calls": [{"id": str(n)} for n in range(rest[0])]})
                )
                made += [NewMessage("tool", f"{n}.5", None, {"tool_call_id": str(n)}) for n in range(rest[0])]
            elif kind == "back":
                if talk.own:
                    node = talk.own[rest[0] % len(talk.own)]
                    made.append(NewMessage(node.role, node.content, node.entry_id, node.payload))
            else:
                made.append(NewMessage(rest[0], rest[1], f"given-{kind}"))
        return made or [NewMessage("user", "nothing else")]

    @staticmethod
    def clash(talk: Talk, messages: Sequence[NewMessage]) -> bool:
        said: dict[str, tuple[str, str, Any]] = {}
        for one in messages:
            if one.entry_id is not None:
                there = talk.find(one.entry_id)
                if there is not None and not there.says(one.role, one.content, one.payload):
                    return True
                says = (one.role, one.content, one.payload)
                if said.setdefault(one.entry_id, says) != says:
                    return True
        return False

    def take_in(
        self, talk: Talk, messages: Sequence[NewMessage], receipts: Sequence[Any], *, exact: bool = True
    ) -> None:
        """What the receipts of a batch say goes into the model."""
        assert len(receipts) == len(messages)
        added: list[int] = []
        for one, receipt in zip(messages, receipts, strict=True):
            assert one.entry_id in (None, receipt.entry_id)
            there = talk.find(receipt.entry_id)
            if there is not None:
                assert receipt.seq == there.seq, "a repeat answers the first receipt"
                continue
            talk.put(Node(receipt.entry_id, receipt.seq, one.role, one.content, one.payload, exact=exact))
            added.append(receipt.seq)
        assert added == list(range(added[0], added[0] + len(added))) if added else True, "a batch is adjacent"

    @staticmethod
    def slots_of(talk: Talk) -> dict[str, Any]:
        return selectors.get_context(caller=ALICE, session_id=talk.session_id).slots

    def refused(self, code: str, work: Callable[[], Any]) -> None:
        with pytest.raises(DomainError) as refusal:
            work()
        assert refusal.value.code == code

    # --- opening ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.open_session(CALM)

    @precondition(lambda self: len(self.talks) < MOST_TALKS)
    @rule(mode=MODES)
    def open_session(self, mode: str) -> None:
        name = self.new_name()
        with redis_away() if mode == AWAY else nullcontext():
            opened = services.open_session(caller=ALICE, session_id=name)
        self.talks.append(Talk(name, opened.owner.pk))
        self.talk(-1)

    # --- appending -------------------------------------------------------------------------------------------------

    @rule(
        which=WHICH,
        batch=BATCHES,
        durability=DURABILITIES,
        read=st.sampled_from([0, 0, 2, WINDOW]),
    )
    def append(self, which: int, batch: Any, durability: str, read: int) -> None:
        talk = self.talk(which)
        messages = self.messages(talk, batch)

        def work() -> Any:
            return services.append_messages(
                caller=ALICE, session_id=talk.session_id, messages=messages, durability=durability, read_last=read
            )

        if talk.deleted:
            return self.refused("SESSION_DELETED", work)
        if self.clash(talk, messages):
            return self.refused("ENTRY_CONFLICT", work)
        done = work()
        self.take_in(talk, messages, done.receipts)
        assert durability == "async" or {receipt.state for receipt in done.receipts} == {COMMITTED}
        if read:
            wanted = talk.window(WINDOW) if read == WINDOW else talk.page(read, None, "active", WINDOW)[0]
            assert [read_of(message) for message in done.messages] == wanted

    @rule(which=WHICH, batch=BATCHES, lost=st.booleans())
    def append_without_redis(self, which: int, batch: Any, lost: bool) -> None:
        talk = self.talk(which)
        if lost and talk.deleted:
            return
        there = stored_ids(talk.pk)
        # What only Redis knows of is not known to be a repeat: the message then gets its place here, and the drain
        # drops the other. What order its client meant is nobody's to say, so no such thing is put here.
        messages = [
            one
            for one in self.messages(talk, batch)
            if one.entry_id is None or one.entry_id in there or not talk.find(one.entry_id)
        ] or [NewMessage("user", "nothing else")]

        def work() -> Any:
            with answers_lost() if lost else redis_away():
                return services.append_messages(caller=ALICE, session_id=talk.session_id, messages=messages)

        if talk.deleted:
            return self.refused("SESSION_DELETED", work)
        if self.clash(talk, messages):
            return self.refused("ENTRY_CONFLICT", work)
        receipts = work().receipts
        talk.gaps = True
        assert {receipt.state for receipt in receipts} == {COMMITTED}
        self.take_in(talk, messages, receipts, exact=False)

    @rule(
        which=WHICH,
        batch=BATCHES,
        death=st.sampled_from(list(APPEND_DEATHS)),
        durability=DURABILITIES,
    )
    def append_and_die(self, which: int, batch: Any, death: str, durability: str) -> None:
        """The client never hears of it, and sends the same batch again."""
        talk = self.talk(which)
        messages = [
            NewMessage(one.role, one.content, one.entry_id or uuid.uuid4().hex, one.payload)
            for one in self.messages(talk, batch)
        ]
        if talk.deleted or self.clash(talk, messages):
            return

        def work() -> Any:
            return services.append_messages(
                caller=ALICE, session_id=talk.session_id, messages=messages, durability=durability
            )

        place, name, after = APPEND_DEATHS[death]
        dies_at(work, place, name, after=after)
        self.take_in(talk, messages, work().receipts)

    @rule(
        which=WHICH,
        writers=st.integers(2, 4),
        trouble=st.sampled_from(["", "drain", "expire", "navigate", "compact", "fork"]),
        place=PLACES,
        durability=DURABILITIES,
    )
    def write_together(self, which: int, writers: int, trouble: str, place: int, durability: str) -> None:
        talk = self.talk(which)
        if talk.deleted:
            return
        targets = [node for node in talk.reachable() if node is not talk.head]
        if (trouble == "navigate" and not targets) or (
            trouble == "fork" and (not talk.head or len(self.talks) >= MOST_TALKS)
        ):
            trouble = ""
        target = targets[place % len(targets)] if trouble == "navigate" else None
        answers: list[tuple[list[NewMessage], list[Any]]] = []
        outcome: list[Any] = []

        def writer(number: int) -> Callable[[], None]:
            def write() -> None:
                for turn in range(2):
                    messages = [
                        NewMessage("user", f"{number}.{turn}.a", None if number % 2 else uuid.uuid4().hex),
                        NewMessage("assistant", f"{number}.{turn}.b", None, {"turn": turn}),
                    ]
                    done = services.append_messages(
                        caller=ALICE, session_id=talk.session_id, messages=messages, durability=durability
                    )
                    answers.append((messages, done.receipts))
                    services.change_context(caller=ALICE, session_id=talk.session_id, slots={f"w{number}": turn})

            return write

        def meanwhile() -> None:
            names: dict[str, Any] = {"caller": ALICE, "session_id": talk.session_id}
            if trouble == "drain":
                drain.drain_batch(entries=3, idle_ms=0)
            elif trouble == "expire":
                base_redis.state().delete(*owner(talk.session_id).keys)
            elif target is not None:
                outcome.append(branching.navigate(**names, entry_id=target.entry_id))
            elif trouble == "compact":
                outcome.append(branching.compact(**names, keep=2))
            elif trouble == "fork":
                outcome.append(branching.fork(**names, new_session_id=self.new_name()))

        none_failed(at_once(*(writer(number) for number in range(writers)), meanwhile))
        self.settle(talk, answers, target, outcome[0] if outcome else None)
        if trouble == "expire":
            talk.slots = dict(self.slots_of(talk))
        else:
            talk.slots.update({f"w{number}": 1 for number in range(writers)})

    def settle(
        self, talk: Talk, answers: Sequence[tuple[list[NewMessage], list[Any]]], target: Node | None, outcome: Any
    ) -> None:
        """Puts what writers put together into the model, in the order of their numbers. Of a move among them the
        parents in the database say what came before it and what after; nothing else could."""
        batches = sorted(answers, key=lambda answer: answer[1][0].seq)
        followed: dict[str, str] = {}
        if target is not None:
            drain_everything()
            rows = AgentMessage.objects.filter(session_row_id=talk.pk)
            followed = dict(rows.values_list("entry_id", "parent_entry_id"))
        pending = outcome.entry if isinstance(outcome, branching.Compacted) else None
        moved = False
        for messages, receipts in batches:
            if pending is not None and receipts[0].seq > pending.seq:
                self.compaction_done(talk, outcome, 2)
                pending = None
            if target is not None and not moved and followed[receipts[0].entry_id] == target.entry_id:
                talk.head, moved = target, True
            self.take_in(talk, messages, receipts)
        if pending is not None:
            self.compaction_done(talk, outcome, 2)
        if target is not None and not moved:
            talk.head = target
        if isinstance(outcome, branching.Forked):
            self.forked(talk, outcome)
            self.touched = talk

    # --- what changes of a path leave in the model ------------------------------------------------------------------

    def moved(self, talk: Talk, target: Node, moved: branching.Moved, text: str | None, *, exact: bool = True) -> None:
        head = talk.head
        if moved.summary and head and (head.kind, head.parent, head.entry_id) == (SUMMARY, target, moved.entry_id):
            assert text in (None, head.content)  # the same call again
            return
        talk.head = target
        if moved.summary is None:
            assert text is None
            assert (moved.entry_id, moved.seq) == (target.entry_id, target.seq)
            return
        assert text in (None, moved.summary.content)
        talk.put(self.node(moved.summary, exact=exact))

    @staticmethod
    def node(message: Any, *, exact: bool = True) -> Node:
        entry_id, seq, role, content, payload, kind = read_of(message)
        return Node(entry_id, seq, role, content, payload, kind, exact=exact)

    def compaction_done(self, talk: Talk, done: branching.Compacted, keep: int | None, *, exact: bool = True) -> None:
        """keep: None where Redis was away: then it is counted from what the database had."""
        assert done.entry is not None
        if keep is None:
            _, rest = shown_at(talk.head)
            covered, kept = done.covered, rest[done.covered :]
        else:
            covered, kept = talk.compacted(keep)
        assert done.covered == covered
        if keep is not None or done.first_kept_entry_id:
            assert (done.first_kept_entry_id or None) == (kept[0].entry_id if kept else None)
        node = self.node(done.entry, exact=exact)
        assert node.kind == COMPACTION
        node.kept = kept
        talk.put(node)

    def forked(self, talk: Talk, done: branching.Forked, target: Node | None = None) -> None:
        if target is None:
            target = next(node for node in path_to(talk.head) if (node.entry_id, node.seq) == (done.entry_id, done.seq))
        assert (done.entry_id, done.seq, done.created) == (target.entry_id, target.seq, True)
        self.talks.append(Talk(done.owner.session_id, done.owner.pk, floor=target, head=target))
        self.talk(-1)
