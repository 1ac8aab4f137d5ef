"""Two tenants with the same names for everything: nothing crosses, and one can be cleaned up."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from config.base.errors import DomainError
from guard.access.models import AgentPrincipal
from guard.access.services import Caller, issue_key, revoke_key
from guard.audit.models import AuditLog
from memory.erasure.models import CustomerTombstone, ErasureReceipt
from memory.erasure.services import erase_tenant
from memory.profiles import selectors as profile_reads
from memory.profiles import services as profiles
from memory.sessions import locks, selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import NewMessage
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from tests.memory.erasure.helpers import command, erase, found_in_redis, left_of, say

pytestmark = pytest.mark.django_db(transaction=True)

SESSION = "the-same-session-id-0001"
CUSTOMER = "the-same-customer"
# `acme` and `ACME` differ in case alone.
TENANTS = ("default", "acme", "ACME")


def caller_of(tenant: str, agent: str = "customer") -> Caller:
    return Caller(tenant, agent, CUSTOMER)


def put(tenant: str, text: str, entry_id: str, durability: str = "async") -> Any:
    message = NewMessage("user", text, entry_id)
    return services.append_messages(
        caller=caller_of(tenant), session_id=SESSION, messages=[message], durability=durability
    ).receipts[0]


def a_life(tenant: str) -> None:
    services.open_session(caller=caller_of(tenant), session_id=SESSION, customer_id=CUSTOMER)
    put(tenant, f"stored of {tenant}.", "e1", "sync")
    services.change_context(caller=caller_of(tenant), session_id=SESSION, intent=f"intent of {tenant}.")
    profiles.write_l1(caller=caller_of(tenant), customer_id=CUSTOMER, payload={})
    profile_reads.read_l1(caller=caller_of(tenant), customer_id=CUSTOMER)
    drain(seconds=0.2)
    put(tenant, f"queued of {tenant}.", "e2")


def texts(tenant: str, limit: int = 20) -> list[str]:
    page = selectors.read_messages(caller=caller_of(tenant), session_id=SESSION, limit=limit)
    return [message.content for message in page.messages]


def test_nothing_crosses() -> None:
    for tenant in TENANTS:
        a_life(tenant)
    for tenant in TENANTS:
        mine = [f"stored of {tenant}.", f"queued of {tenant}."]
        assert texts(tenant) == mine  # from the window
        assert texts(tenant, limit=200) == mine  # from MySQL and the stream
        context = selectors.get_context(caller=caller_of(tenant), session_id=SESSION)
        assert context.intent == f"intent of {tenant}."
    # The same entry id with other content is another entry in each; repeated, it answers its own tenant's receipt.
    for tenant in TENANTS:
        assert put(tenant, f"stored of {tenant}.", "e1").seq == 1
        with pytest.raises(DomainError) as caught:
            put(tenant, f"stored of {TENANTS[TENANTS.index(tenant) - 1]}.", "e1")
        assert caught.value.code == "ENTRY_CONFLICT"
    # One lock each.
    held = [locks.acquire(caller=caller_of(tenant), session_id=SESSION) for tenant in TENANTS]
    for lock in held:
        lock.check()
        lock.release()
    # A version of one tenant's profile is not another's.
    assert profiles.write_l1(caller=caller_of("acme"), customer_id=CUSTOMER, payload={}).version == 2
    versions = [profile_reads.read_l1(caller=caller_of(t), customer_id=CUSTOMER)["version"] for t in TENANTS]
    assert versions == [1, 2, 1]
    drain(seconds=0.5)
    for tenant in TENANTS:
        rows = AgentMessage.objects.filter(tenant=tenant).order_by("seq")
        assert [row.content for row in rows] == [f"stored of {tenant}.", f"queued of {tenant}."]
        names = found_in_redis(f"of {tenant}.")
        assert len(names) == 2  # its own window and context
    # A tenant that has no such session has none.
    with pytest.raises(DomainError) as caught:
        texts("nobody")
    assert caught.value.code == "SESSION_NOT_FOUND"


def test_an_erasure_does_not_cross() -> None:
    for tenant in TENANTS:
        a_life(tenant)
    code, _ = erase(CUSTOMER, "--tenant", "acme")
    assert code == 0
    assert left_of("of acme.") == []
    with pytest.raises(DomainError):
        texts("acme")
    for tenant in ("default", "ACME"):
        assert texts(tenant) == [f"stored of {tenant}.", f"queued of {tenant}."]
        assert put(tenant, "more", "e3").seq == 3
        assert profile_reads.read_l1(caller=caller_of(tenant), customer_id=CUSTOMER)["version"] == 1


def test_counts_of_each_tenant(django_assert_max_num_queries: Any) -> None:
    for tenant in TENANTS:
        a_life(tenant)
    put("acme", "x" * 100, "e3")
    MessageDeadLetter.objects.create(
        session_id=SESSION, tenant="acme", entry_id="e", reason="refused", stream_id="1-1", raw="{}"
    )
    services.delete_session(caller=caller_of("default"), session_id=SESSION)
    with django_assert_max_num_queries(10):
        code, counted = command("tenants")
    assert code == 0
    assert list(counted) == ["ACME", "acme", "default"]
    assert counted["acme"] == {
        "sessions": 1, "open_in_redis": 1, "messages": 2, "bytes": len("stored of acme.queued of acme."), "queued": 1,
        "dead_letters": 1, "profiles_l1": 1, "profiles_l2": 0, "profiles_l3": 0, "profile_versions": 1,
        "erased_sessions": 0,
    }  # fmt: skip
    assert (counted["ACME"]["queued"], counted["ACME"]["dead_letters"]) == (1, 0)
    assert (counted["default"]["sessions"], counted["default"]["open_in_redis"]) == (1, 0)
    erase(CUSTOMER, "--tenant", "acme")
    counted = command("tenants")[1]
    assert {name: n for name, n in counted["acme"].items() if n} == {"erased_sessions": 1}


def test_one_tenant_is_cleaned_up_and_the_others_are_not(settings: Any) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 0.1
    for tenant in TENANTS:
        a_life(tenant)
        issue_key(agent="advisor", tenant=tenant)
    stray = Caller("acme", "analyst", "ana-1")
    other = services.open_session(caller=stray).owner.session_id
    say(other, "of acme. too", caller=stray)

    assert command("tenants", "--erase", "acme")[0] == 2
    assert command("tenants", "--erase", "acme", "--confirm", "ACME")[0] == 2
    code, receipt = command("tenants", "--erase", "acme", "--confirm", "acme", "--by", "ops", "--reason", "it ended")
    assert (code, receipt["state"], receipt["of"]) == (0, "done", "tenant")
    assert receipt["removed"]["memory.sessions"]["sessions"] == 2
    assert receipt["removed"]["guard.access"] == {"keys_revoked": 1}
    assert left_of("of acme.") == []
    assert found_in_redis("acme:profile:") == []
    assert AgentPrincipal.objects.filter(tenant="acme", revoked_at=None).count() == 0
    assert AgentPrincipal.objects.filter(revoked_at=None).count() == 2
    for tenant in ("default", "ACME"):
        assert texts(tenant) == [f"stored of {tenant}.", f"queued of {tenant}."]
    assert AuditLog.objects.filter(event_type="erasure", object_type="tenant", tenant="acme").count() == 2
    # Its old sessions stay refused; the tenant itself may begin anew.
    with pytest.raises(DomainError) as caught:
        put("acme", "late", "e9")
    assert caught.value.code == "CUSTOMER_ERASED"
    new = services.open_session(caller=caller_of("acme"), customer_id=CUSTOMER).owner.session_id
    say(new, "again", caller=caller_of("acme"))
    assert not CustomerTombstone.objects.filter(at__isnull=False).exists()


def test_a_tenant_that_nobody_knows_was_not_erased() -> None:
    a_life("acme")
    before = AuditLog.objects.count()
    for name in ("nope", "Acme"):
        code, answer = command("tenants", "--erase", name, "--confirm", name)
        assert (code, answer["code"]) == (1, "NOT_FOUND")
        assert f"nothing is known of tenant '{name}'" in answer["detail"]
    assert not ErasureReceipt.objects.exists()
    assert not CustomerTombstone.objects.exists()
    assert AuditLog.objects.count() == before
    assert texts("acme") == ["stored of acme.", "queued of acme."]


@pytest.mark.parametrize("known", ["key", "revoked key", "erased customer", "released hold"])
def test_a_tenant_with_little_left_is_known(known: str, settings: Any) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 0.1
    if "key" in known:
        issued = issue_key(agent="advisor", tenant="acme")
        if known == "revoked key":
            revoke_key(principal_id=issued.principal.principal_id, revoked_by="ops")
    elif known == "erased customer":
        erase(CUSTOMER, "--tenant", "acme")
    else:
        hold = command("legal_hold", "place", "somebody", "--tenant", "acme", "--reason", "case")[1]["hold"]
        assert command("legal_hold", "release", str(hold), "--tenant", "acme")[0] == 0
    code, receipt = command("tenants", "--erase", "acme", "--confirm", "acme")
    assert (code, receipt["state"], receipt["of"]) == (0, "done", "tenant")


def test_a_repeat_answers_the_former_receipt(settings: Any) -> None:
    settings.PRINCIPAL_CACHE_SECONDS = 0.1
    a_life("acme")
    issue_key(agent="advisor", tenant="acme")
    first = command("tenants", "--erase", "acme", "--confirm", "acme", "--by", "ops", "--reason", "it ended")
    rows = AuditLog.objects.count()
    assert command("tenants", "--erase", "acme", "--confirm", "acme", "--by", "eve", "--reason", "again") == first
    assert (ErasureReceipt.objects.count(), AuditLog.objects.count()) == (1, rows)
    # Something has come since: that is another erasure, with a receipt of its own.
    say(services.open_session(caller=caller_of("acme")).owner.session_id, "again", caller=caller_of("acme"))
    code, second = command("tenants", "--erase", "acme", "--confirm", "acme")
    assert (code, second["removed"]["memory.sessions"]["sessions"]) == (0, 1)
    assert second["receipt"] != first[1]["receipt"]
    # What is under a hold is not told as erased, be it that nothing is left.
    command("legal_hold", "place", "somebody", "--tenant", "acme", "--reason", "case")
    assert command("tenants", "--erase", "acme", "--confirm", "acme")[1]["code"] == "LEGAL_HOLD"


def test_a_receipt_reads_the_same_each_time() -> None:
    a_life("acme")
    printed = []
    for arguments in (["--json"], []):
        for _ in range(2):
            out = io.StringIO()
            call_command("erase_customer", CUSTOMER, "--tenant", "acme", "--by", "ops", *arguments, stdout=out)
            printed.append(out.getvalue())
    assert printed[0] == printed[1]
    assert printed[2] == printed[3]
    assert list(json.loads(printed[0])) == sorted(json.loads(printed[0]))


def test_while_it_is_cleaned_up_nothing_new_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    a_life("acme")
    refused = []

    def meanwhile(_seconds: float) -> None:
        for work in (
            lambda: services.open_session(caller=Caller("acme", "analyst", "ana-1")),
            lambda: profiles.write_l1(caller=Caller("acme", "customer", "new"), customer_id="new", payload={}),
        ):
            with pytest.raises(DomainError) as caught:
                work()
            refused.append(caught.value.code)

    issue_key(agent="advisor", tenant="acme")
    monkeypatch.setattr("memory.erasure.services.time.sleep", meanwhile)
    receipt = erase_tenant(tenant="acme", by="ops")
    assert receipt.state == "done"
    assert refused == ["CUSTOMER_ERASED"] * 2
    assert AgentSession.objects.filter(tenant="acme", erased_at=None).count() == 0


def test_a_hold_on_any_customer_keeps_the_tenant() -> None:
    for tenant in ("acme", "ACME"):
        a_life(tenant)
    command("legal_hold", "place", "somebody", "--tenant", "acme", "--reason", "case")
    code, answer = command("tenants", "--erase", "acme", "--confirm", "acme")
    assert (code, answer["code"]) == (1, "LEGAL_HOLD")
    assert texts("acme") == ["stored of acme.", "queued of acme."]
    assert command("tenants", "--erase", "ACME", "--confirm", "ACME")[0] == 0


def test_keys_of_a_tenant_are_told_apart_by_name() -> None:
    """A tenant may be called like a part of a key."""
    from memory.erasure.names import Reader
    from memory.sessions.keys import CTX

    reader = Reader([CTX])
    for tenant in ("default", "sess", "profile", "ctx"):
        name = CTX(tenant, agent="customer", session_id="sess")
        found = reader.read(name)
        assert found is not None
        assert (found.tenant, found.parts) == (tenant, {"agent": "customer", "session_id": "sess"})
    assert reader.read("sess:customer:x:ctx") is None  # without this environment's prefix
