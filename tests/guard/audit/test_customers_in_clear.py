"""A customer's id stands in clear nowhere in the log, whatever was done for, about and against that customer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from config.base.errors import DomainError
from guard.access.services import Caller, issue_key, revoke_key
from guard.access.unmasking import unmask
from guard.admission import limits
from guard.admission.blocks import block_actor, lift_block, pause_agent
from guard.audit import pseudonyms, told
from guard.audit.models import AuditLog
from guard.audit.services import record
from memory.core.models import CoreAssignment
from memory.erasure.holds import place_hold, release_hold
from memory.erasure.services import erase_customer
from memory.profiles.drafts import services as drafts
from memory.sessions.dead_letters import drop_letter
from memory.sessions.persist import bury
from tests.memory.drafts.helpers import WORDS
from tests.risk.console.make import make_alert, make_auditor, make_client, make_customer, make_officer, make_person

pytestmark = pytest.mark.django_db(transaction=True)
MARK, NAME = "C990017", "王建国"
LOG = "/admin/guard/auditlog/"


def in_clear(*needles: str) -> list[str]:
    """Columns that hold one of these, with what the row is about; read past the ORM."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM audit_log ORDER BY id")
        columns = [column[0] for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    return [
        f"{row['event_type']}/{row['decision']} {row['object_type']} {column}: {value}"
        for row in rows
        for column, value in row.items()
        # the cast's trades are named so
        if any(one in str(value).replace(f"T-{MARK}-", "") for one in needles)
    ]


class Service:
    def __init__(self, agent: str, actor: str, **bound: str) -> None:
        self.headers = {"Authorization": f"Bearer {issue_key(agent=agent, **bound).key}", "X-Actor-Id": actor}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return Client().generic(
            method, f"/api/v1{path}", b"" if body is None else json.dumps(body).encode(),
            content_type="application/json", headers={**self.headers, **headers},
        )  # fmt: skip


def agents_work() -> None:
    """What agents ask for and about the customer, allowed and refused."""
    own, another = Service("customer", MARK, actor_id=MARK), Service("customer", "bob")
    advisor, stranger = Service("advisor", "ADV001"), Service("advisor", "ADV009")
    analyst, risk = Service("analyst", "ana"), Service("risk", "r")
    session = own("POST", "/sessions", {"customer_id": MARK}).json()["session_id"]
    theirs = advisor("POST", "/sessions", {"customer_id": MARK}).json()["session_id"]
    own("POST", f"/sessions/{session}/messages", {"messages": [{"role": "user", "content": MARK, "entry_id": MARK}]})
    for service in (another, stranger, analyst, risk):
        for place in (session, theirs):
            assert service("GET", f"/sessions/{place}").status_code == 403
        for path in (f"/profiles/l1/{MARK}", f"/profiles/l2/{MARK}/ADV001", f"/profiles/l3/{MARK}"):
            service("GET", path)
            service("PUT", path, {MARK: MARK})
        service("GET", f"/snapshots/ADV001/{MARK}")
        service("POST", "/drafts", {"customer_id": MARK, "kind": "message", "channel": "email", "body": MARK})
        service("GET", f"/drafts?customer_id={MARK}")
    for body in ({MARK: 1}, {"assessment": {MARK: MARK}}, {"tags": [MARK]}, {"c_level": MARK}, {"name": NAME}):
        own("PUT", f"/profiles/l1/{MARK}", body)
        advisor("PUT", f"/profiles/l2/{MARK}/ADV001", body)
        risk("PUT", f"/profiles/l3/{MARK}", body)
    for statement in (
        f"SELECT name FROM core_customer WHERE customer_id = '{MARK}'",
        f"SELECT {MARK} FROM core_customer", f"SELECT * FROM {MARK}", f"DROP TABLE {MARK}",
        f"SELECT customer_id AS {MARK} FROM core_trade", f"/* {MARK} {NAME} */ SELECT amount FROM core_trade",
    ):  # fmt: skip
        analyst("POST", "/analytics/queries", {"sql": statement})
        analyst("POST", "/analytics/queries/check", {"sql": statement})
    limits.set_limit(tenant="default", kind="rate", value=0, by="ops")
    for service in (own, advisor):
        service("POST", "/admissions", {"action": MARK, "estimate": "1", "session_id": session})
    for service in (own, Service("advisor", "ADV001", actor_id="ADV001")):
        service("GET", f"/profiles/l1/{MARK}", **{"X-Actor-Id": "bob"})
    Service("advisor", "ADV001", actor_id="ADV001")("GET", "/profiles/l1/x", **{"X-Actor-Id": MARK})
    pair = own("POST", "/tokens").json()
    for _ in range(2):
        own("POST", "/tokens/refresh", {"refresh_token": pair["refresh_token"]})
    bury(tenant="default", session_id=session, stream_id="1-1", entry_id="e-1", seq=1, reason="refused", detail=MARK,
         raw=MARK)  # fmt: skip


def people_work() -> None:
    """What people do to the customer, and what they type."""
    officer, root = make_officer(), make_person("root", superuser=True)
    alert = make_alert(MARK)
    sentence = f"{NAME} ({MARK}) called, as did C00017,{MARK}."
    for words in (sentence, f"case {MARK}", MARK):
        unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason=words.ljust(5))
        block_actor(tenant="default", actor_id="bob", code="OFFICER", reason=words, by=officer, seconds=60)
        lift_block(tenant="default", actor_id="bob", by=officer)
        limits.set_limit(tenant="default", kind="hourly", value=1, by="ops", reason=words, actor_id=MARK, action=MARK)
    block_actor(tenant="default", actor_id=MARK, code="OFFICER", reason=sentence, by=officer)
    pause_agent(tenant="default", agent="risk", reason=f"for {MARK}", by=officer)
    for refused in (
        lambda: block_actor(tenant="default", actor_id=MARK, code="OFFICER", by=root),
        lambda: pause_agent(tenant="default", agent=MARK, reason="x", by=root),
        lambda: unmask(staff=officer, kind="risk_alert", object_id=MARK, reason="a reason"),
        lambda: unmask(staff=root, kind="risk_alert", object_id=MARK, reason="a reason"),
    ):
        with pytest.raises(DomainError):
            refused()
    pages = (
        f"/admin/memory/customerprofilel1/{MARK}/change/", f"/admin/memory/corecustomer/{MARK}/change/",
        f"/admin/memory/advisordraft/{MARK}/approve/", f"/admin/auth/user/{MARK}/password/",
        f"/admin/risk/riskalert/{MARK}/change/", f"/admin/risk/riskalert/{MARK}/claim/",
        f"/admin/risk/riskalert/{MARK}/unmask/", f"/admin/customers/core/{MARK}/",
        f"/admin/guard/actorblock/?q={MARK}", f"/admin/risk/riskalert/?q={MARK}",
    )  # fmt: skip
    for person in (officer, root, make_auditor()):
        client = make_client(person)
        for page in pages:
            client.get(page)
            client.post(page, {"action": MARK, "_selected_action": MARK, "reason": sentence, "version": 0})
        client.post("/admin/customers/", {"customer_id": MARK})
        client.post("/admin/guard/actorblock/add/", {"actor_id": MARK, "reason": sentence, "minutes": 1})


def drafts_and_letters() -> None:
    CoreAssignment.objects.get_or_create(tenant="default", customer_id=MARK, advisor_id="ADV001")
    caller = Caller("default", "advisor", "ADV001")
    draft = drafts.create_draft(caller=caller, customer_id=MARK, content=WORDS)
    drafts.submit_draft(caller=caller, draft_id=draft.draft_id, version=draft.version)
    key = issue_key(agent="customer", actor_id=MARK, note=MARK).principal
    revoke_key(principal_id=key.principal_id, revoked_by="ops")
    from memory.sessions.models import MessageDeadLetter

    drop_letter(letter_id=MessageDeadLetter.objects.get().pk, by="ops")


def searches() -> None:
    client = make_client(make_person(f"e{AuditLog.objects.count()}", "compliance_auditor"))
    for name in ("q", "actor", "object", "customer", "code", "trace", "event", "actor_type__exact", "decision"):
        for kind in ("csv", "jsonl"):
            answer = client.get(f"{LOG}export/{kind}/", {name: MARK})
            assert answer.status_code in (200, 302)
            b"".join(answer.streaming_content if answer.streaming else ())  # type: ignore[attr-defined]
            client.get(LOG, {name: MARK})


def test_nowhere_in_the_log_before_and_after_erasure() -> None:
    make_customer(MARK)
    agents_work()
    people_work()
    drafts_and_letters()
    searches()
    assert in_clear(MARK, NAME) == []
    assert AuditLog.objects.filter(customer=pseudonyms.of("default", MARK)).count() > 30, "and they are found"
    hold = place_hold(customer_id=MARK, by="legal", reason=f"of {MARK}")
    with pytest.raises(DomainError):
        erase_customer(customer_id=MARK, by="ops", reason=f"{MARK} asked")
    release_hold(hold_id=hold.pk, by="legal")
    erase_customer(customer_id=MARK, by="ops", reason=f"{MARK} asked")
    assert in_clear(MARK, NAME) == []
    last = AuditLog.objects.order_by("-id")[0].pk
    searches()
    with pytest.raises(DomainError):
        unmask(staff=make_officer("lin2"), kind="risk_alert", object_id=MARK, reason=f"was that {MARK}?")
    assert in_clear(MARK, NAME) == []
    exports = AuditLog.objects.filter(event_type="evidence_exported", pk__gt=last)
    assert exports.count() >= 8
    for row in exports:
        assert all("unknown" in value for value in row.input_summary["search"].values()), row.input_summary


def asked(**search: str) -> dict[str, Any]:
    client = make_client(make_person(f"e{AuditLog.objects.count()}", "compliance_auditor"))
    b"".join(client.get(f"{LOG}export/csv/", search).streaming_content)  # type: ignore[attr-defined]
    row = AuditLog.objects.filter(event_type="evidence_exported").order_by("-id")[0]
    found: dict[str, Any] = row.input_summary["search"]
    return found


def test_what_an_examiner_asked_for_is_told_as_far_as_it_is_ours() -> None:
    lin = make_officer()
    row = record(
        tenant="default", event_type="authz", decision="forbidden", actor_type="agent", actor_id="ADV001",
        object_type="session", object_id="sess-0123456789abcdef", code="NOT_OWNER", trace_id="a" * 32,
        customer_id=MARK,
    )  # fmt: skip
    assert asked(actor="ADV001", object="sess-0123456789abcdef", code="NOT_OWNER", trace="a" * 32) == {
        "actor": "ADV001", "object": "sess-0123456789abcdef", "code": "NOT_OWNER", "trace": "a" * 32,
    }  # fmt: skip
    assert asked(actor=lin.username, event="authz", decision="forbidden", actor_type__exact="agent") == {
        "actor": "lin", "event": "authz", "decision": "forbidden", "actor_type": "agent",
    }  # fmt: skip
    for value in ("ADV001", "a" * 32, "NOT_OWNER", row.customer):
        assert asked(q=value) == {"q": value}
    assert asked(q=MARK) == asked(q=row.customer)
    assert asked(actor=MARK, customer=MARK) == {"actor": row.customer, "customer": row.customer}
    assert asked(q="C990018", object="C990018", code="C990018") == dict.fromkeys(
        ("q", "object", "code"), "unknown, 7 characters"
    )
    assert asked(trace="b" * 32, customer="C990018") == {"trace": "unknown, 32 characters", "customer": "unknown"}


def test_rows_from_before_the_pseudonyms_do_not_make_a_customer_known() -> None:
    common = {"tenant": "default", "event_type": "authz", "decision": "forbidden"}
    AuditLog.objects.create(**common, actor_type="customer", actor_id="C1", object_type="profile_l1", object_id="C1")
    assert asked(actor="C1", object="C1", q="C1") == dict.fromkeys(("actor", "object", "q"), "unknown, 2 characters")


def test_sentences_lose_customers_and_keep_their_other_words() -> None:
    make_customer(MARK)
    sentence = f"ticket 20261130-7: {NAME} {MARK}/{MARK}，ref-{MARK}。C990018 x{MARK} {MARK}. {MARK}"
    assert told.free_text("default", sentence) == (
        f"ticket 20261130-7: *** unknown/unknown，ref-unknown。C990018 x{MARK} unknown. unknown"
    )
    name = pseudonyms.of("default", MARK)
    assert told.free_text("default", f"客户{NAME}({MARK})来电") == f"客户***({name})来电"
    assert told.free_text("default", f"客户{NAME}来电", [MARK]) == "客户***来电"


def test_what_is_not_known_for_the_core_is_away_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_check", lambda tenant, words: words)
    assert told.free_text("default", "ticket 7777 of C990018") == "ticket unknown of unknown"
    assert told.object_id("default", "17") == "unknown"
