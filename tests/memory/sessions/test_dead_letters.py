"""What could not become a message: seen by operators, retried or dropped by them, on the record, in nobody's way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import DataError
from django.http import HttpResponse

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.sessions import dead_letters, persist, selectors
from memory.sessions.dead_letters import drop_letter, retry_letter
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import content_digest
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.memory.sessions.helpers import ALICE, append, make_message, make_session, owner, put, stored
from tests.risk.console.make import make_client, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db(transaction=True)
LETTERS = "/admin/memory/messagedeadletter/"


def queue_raw(session: str, entry_id: str, seq: int, content: str = "clashing words", ident: str = "") -> None:
    """An entry in the stream that the append script did not write."""
    body = json.dumps({"entry_id": entry_id, "role": "user", "content": content, "payload": None}, ensure_ascii=False)
    message = f'{body[:-1]},"seq":{seq},"at":1700000000000000}}'
    digest = content_digest("user", content.encode(), None)
    base_redis.state().xadd(PENDING(), {"k": ident or owner(session).ident, "g": digest, "x": "t", "m": message})


def make_letter(content: str = "clashing words") -> tuple[str, MessageDeadLetter]:
    """A session whose number 1 a second entry claims."""
    session = make_session()
    append(session, "first")
    queue_raw(session, "clash", 1, content)
    assert drain().dead == 1
    return session, MessageDeadLetter.objects.get()


def audited(decision: str) -> list[Any]:
    return list(AuditLog.objects.filter(event_type="dead_letter", decision=decision).order_by("id"))


def test_a_retried_letter_gets_a_number_of_its_own_and_is_read_like_any_other() -> None:
    session, letter = make_letter()
    (moved,) = audited("moved")
    assert (moved.code, moved.object_id, moved.input_summary["session_id"]) == ("SEQ_TAKEN", "clash", session)
    number = retry_letter(letter_id=letter.pk, by="ops")
    assert number > 1000
    assert stored(session) == [(1, "first"), (number, "clashing words")]
    reattach()
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert [m.content for m in page.messages] == ["first", "clashing words"]
    assert append(session, "after")[0].seq > number
    (row,) = audited("retried")
    assert (row.actor_type, row.actor_id, row.input_summary["seq"]) == ("staff", "ops", number)
    letter.refresh_from_db()
    assert (letter.settled, letter.settled_by, letter.raw) == ("retried", "ops", "")
    with pytest.raises(DomainError) as refused:
        retry_letter(letter_id=letter.pk, by="ops")
    assert refused.value.code == "DEAD_LETTER_CONFLICT"


def test_a_dropped_letter_loses_its_text_and_keeps_its_story() -> None:
    session, letter = make_letter()
    drop_letter(letter_id=letter.pk, by="ops")
    letter.refresh_from_db()
    assert (letter.settled, letter.raw, letter.seq) == ("dropped", "", 1)
    assert [row.actor_id for row in audited("dropped")] == ["ops"]
    with pytest.raises(DomainError):
        drop_letter(letter_id=letter.pk, by="ops")
    assert stored(session) == [(1, "first")]


def test_what_was_refused_once_gets_its_own_number_back(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "a", "refused", "c")
    original = persist.insert_entries

    def refuse(entries: Any) -> None:
        if any(entry.content == "refused" for entry in entries):
            raise DataError(1406, "too long")
        original(entries)

    monkeypatch.setattr(persist, "insert_entries", refuse)
    monkeypatch.setattr(dead_letters, "insert_entries", refuse)
    assert (drain().dead, MessageDeadLetter.objects.get().reason) == (1, "refused")
    with pytest.raises(DomainError, match="refuses it again"):
        retry_letter(letter_id=MessageDeadLetter.objects.get().pk, by="ops")
    assert MessageDeadLetter.objects.get().raw
    monkeypatch.undo()
    assert retry_letter(letter_id=MessageDeadLetter.objects.get().pk, by="ops") == 2
    assert stored(session) == [(1, "a"), (2, "refused"), (3, "c")]


def test_reasons_that_still_stand_are_said() -> None:
    session = make_session()
    put(session, make_message("mine", entry_id="taken"))
    queue_raw(session, "taken", 9, "other words")
    queue_raw(session, "orphan", 5, ident=f"{owner(session).pk + 9} default customer not-a-session-yet")
    base_redis.state().xadd(PENDING(), {"k": owner(session).ident, "g": "d", "x": "t", "m": "{broken"})
    base_redis.state().xadd(PENDING(), {"nonsense": "1"})
    assert drain().dead == 4
    told = {}
    for letter in MessageDeadLetter.objects.all():
        with pytest.raises(DomainError) as refused:
            retry_letter(letter_id=letter.pk, by="ops")
        told[letter.entry_id, letter.session_id] = refused.value.code
    assert told == {
        ("taken", session): "DEAD_LETTER_CONFLICT",
        ("orphan", "not-a-session-yet"): "SESSION_NOT_FOUND",
        ("", session): "DEAD_LETTER_CONFLICT",
        ("", ""): "DEAD_LETTER_CONFLICT",
    }
    assert not audited("retried")
    # Its session is made: now it can.
    orphan = MessageDeadLetter.objects.get(entry_id="orphan")
    made = make_session(session_id="not-a-session-yet")
    assert retry_letter(letter_id=orphan.pk, by="ops") > 1000
    assert [content for _, content in stored(made)] == ["clashing words"]


def test_a_deleted_session_is_not_revived_by_a_retry() -> None:
    from memory.sessions.services import delete_session

    session, letter = make_letter()
    delete_session(caller=ALICE, session_id=session)
    with pytest.raises(DomainError) as refused:
        retry_letter(letter_id=letter.pk, by="ops")
    assert refused.value.code == "SESSION_DELETED"
    assert AgentMessage.objects.count() == 1


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_large_letters_come_back_whole(size: int) -> None:
    session, letter = make_letter("'大\\" * (size // 4))
    retry_letter(letter_id=letter.pk, by="ops")
    assert stored(session)[1][1] == "'大\\" * (size // 4)


# --- the admin ----------------------------------------------------------------------------------------------------


def page(response: HttpResponse) -> str:
    assert response.status_code == 200
    return response.content.decode()


def test_operators_see_why_and_not_what() -> None:
    _session, letter = make_letter()
    client = make_client(make_operator())
    for text in (page(client.get(LETTERS)), page(client.get(f"{LETTERS}{letter.pk}/change/"))):
        assert "its number belongs to another message" in text
        assert "clashing words" not in text
    assert not AuditLog.objects.filter(event_type="unmask").exists()
    reader = make_person("reader")
    reader.user_permissions.add(
        *Permission.objects.filter(codename__in=["view_messagedeadletter", "view_agentmessage"])
    )
    text = page(make_client(reader).get(f"{LETTERS}{letter.pk}/change/"))
    assert "clashing words" in text
    assert 'name="drop"' not in text
    look = AuditLog.objects.get(event_type="unmask")
    assert (look.decision, look.actor_id, look.object_type) == ("granted", "reader", "message_dead_letter")
    assert "clashing words" not in page(make_client(reader).get(LETTERS))
    assert make_client(make_officer()).get(LETTERS).status_code == 403


def test_retry_and_drop_are_actions_and_buttons() -> None:
    session = make_session()
    append(session, "first")
    for n in range(4):
        queue_raw(session, f"clash{n}", 1)
    drain()
    one, two, three, four = MessageDeadLetter.objects.order_by("id").values_list("pk", flat=True)
    client = make_client(make_operator())
    client.post(LETTERS, {"action": "retry", "_selected_action": [one]})
    text = page(client.post(LETTERS, {"action": "drop", "_selected_action": [two]}))
    assert "removed for good" in text
    assert MessageDeadLetter.objects.get(pk=two).settled == ""
    client.post(LETTERS, {"action": "drop", "_selected_action": [two], "sure": "1"})
    client.post(f"{LETTERS}{three}/change/", {"retry": "1"})
    client.post(f"{LETTERS}{four}/change/", {"drop": "1"})
    outcome = dict(MessageDeadLetter.objects.values_list("pk", "settled"))
    assert outcome == {one: "retried", two: "dropped", three: "retried", four: "dropped"}
    assert {row.actor_id for row in (*audited("retried"), *audited("dropped"))} == {"ops"}
    told = page(client.post(LETTERS, {"action": "retry", "_selected_action": [two]}, follow=True))
    assert "ops has decided already" in told


def test_others_may_not_settle_and_tenants_do_not_cross() -> None:
    _session, letter = make_letter()
    viewer = make_person("viewer")
    viewer.user_permissions.add(Permission.objects.get(codename="view_messagedeadletter"))
    assert make_client(viewer).post(f"{LETTERS}{letter.pk}/change/", {"drop": "1"}).status_code == 403
    make_client(viewer).post(LETTERS, {"action": "drop", "_selected_action": [letter.pk], "sure": "1"})
    east = make_client(make_operator("east-ops", tenant="east"))
    assert "clash" not in page(east.get(LETTERS))
    east.post(f"{LETTERS}{letter.pk}/change/", {"drop": "1"})
    with pytest.raises(DomainError) as refused:
        drop_letter(letter_id=letter.pk, by="east-ops", tenant="east")
    assert refused.value.code == "NOT_FOUND"
    letter.refresh_from_db()
    assert letter.settled == ""


def test_in_chinese() -> None:
    make_letter()
    text = page(make_client(make_operator(), language="zh-hans").get(LETTERS))
    for word in ("死信", "等待处理", "重试所选死信", "丢弃所选死信"):
        assert word in text


def test_letters_hold_up_nobody() -> None:
    session, _letter = make_letter()
    append(session, "after")
    assert drain().stored == 1
    assert backlog() == 0
