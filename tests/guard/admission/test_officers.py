"""Who blocks, pauses and lifts: whoever holds the role, asked by the service; running the system is no role."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from config.base.errors import DomainError
from guard.admission.blocks import block_actor, lift_block, lift_pause, pause_agent
from guard.admission.models import ActorBlock, AgentPause
from guard.audit.models import AuditLog
from tests.risk.console.make import make_auditor, make_client, make_manager, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db(transaction=True)
D = {"tenant": "default"}
ACTS: dict[str, Callable[[User], Any]] = {
    "block": lambda by: block_actor(**D, actor_id="alice", code="OFFICER", by=by),
    "lift_block": lambda by: lift_block(**D, actor_id="bob", by=by),
    "pause": lambda by: pause_agent(**D, agent="advisor", reason="wrong", by=by),
    "lift_pause": lambda by: lift_pause(**D, agent="analyst", by=by),
}


@pytest.fixture(autouse=True)
def something_in_force() -> None:
    block_actor(**D, actor_id="bob", code="INJECTION", by="guard.inputs")
    pause_agent(**D, agent="analyst", reason="wrong", by="guard.inputs")


def in_force() -> tuple[list[str], list[str]]:
    blocked = ActorBlock.objects.filter(open=1).values_list("actor_id", flat=True)
    return sorted(blocked), sorted(AgentPause.objects.filter(open=1).values_list("agent", flat=True))


def refusals() -> list[tuple[str, str]]:
    rows = AuditLog.objects.filter(event_type="authz", decision="forbidden").order_by("id")
    return [(row.actor_id, row.input_summary["action"]) for row in rows]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("who", ["root", "meng", "an", "former", "stranger"])
def test_the_service_refuses_who_lacks_the_role_and_keeps_it(who: str, act: str) -> None:
    person = {
        "root": lambda: make_person("root", superuser=True),
        "meng": make_manager,
        "an": make_auditor,
        "former": lambda: make_officer("former"),
        "stranger": lambda: make_officer("stranger", tenant="east"),
    }[who]()
    if who == "former":
        User.objects.filter(pk=person.pk).update(is_active=False)
        person = User.objects.get(pk=person.pk)
    before = in_force()
    with pytest.raises(DomainError) as refused:
        ACTS[act](person)
    assert refused.value.code == "FORBIDDEN"
    assert in_force() == before
    assert refusals() == [(who, act)]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("superuser", [False, True])
def test_who_holds_the_role_acts_also_where_they_run_the_system(act: str, superuser: bool) -> None:
    before = in_force()
    ACTS[act](make_officer(superuser=superuser))
    assert in_force() != before
    assert refusals() == []
    assert AuditLog.objects.order_by("-id")[0].actor_id == "lin"


def test_an_operator_blocks_and_lifts_and_pauses_nothing() -> None:
    operator = make_operator()
    ACTS["block"](operator)
    ACTS["lift_block"](operator)
    for act in ("pause", "lift_pause"):
        with pytest.raises(DomainError, match="FORBIDDEN"):
            ACTS[act](operator)
    assert in_force() == (["alice"], ["analyst"])


def test_a_superusers_posts_in_the_console_are_refused_and_the_tables_are_seen() -> None:
    root, before = make_client(make_person("root", superuser=True)), in_force()
    for table, form, pk in (
        ("actorblock", {"actor_id": "alice", "minutes": "15", "reason": "because"}, ActorBlock.objects.get().pk),
        ("agentpause", {"agent": "advisor", "reason": "because of harm"}, AgentPause.objects.get().pk),
    ):
        page = f"/admin/guard/{table}/"
        listed = root.get(page)
        assert listed.status_code == 200
        assert f"{page}add/" not in listed.content.decode(), "what would be refused is not offered"
        assert root.get(f"{page}add/").status_code == 403
        assert root.post(f"{page}add/", form).status_code == 403
        assert root.post(page, {"action": "lift", "_selected_action": [pk]}).status_code == 403
    assert in_force() == before
    assert len(refusals()) == 6
    assert {who for who, _action in refusals()} == {"root"}


def test_the_service_decides_where_the_page_let_somebody_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from guard.admission import admin as pages

    monkeypatch.setattr(pages, "may", lambda user, permission: True)
    root, before = make_client(make_person("root", superuser=True)), in_force()
    assert root.post("/admin/guard/agentpause/add/", {"agent": "advisor", "reason": "because"}).status_code == 403
    pk = ActorBlock.objects.get().pk
    assert root.post("/admin/guard/actorblock/", {"action": "lift", "_selected_action": [pk]}).status_code == 403
    assert in_force() == before
    assert refusals() == [("root", "pause"), ("root", "lift_block")], "one row each"


def test_the_command_stays_the_operators_and_names_who_decided() -> None:
    call_command("unblock", "bob", by="zhou", stdout=io.StringIO())
    assert in_force()[0] == []
    assert AuditLog.objects.filter(event_type="actor_block", decision="lifted").get().actor_id == "zhou"
