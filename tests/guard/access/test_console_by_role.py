"""The whole console, page by page and action by action, for each role: who sees what, and that a refusal is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern

from config.base.clock import now
from guard.access.models import StaffMember
from guard.access.roles import ROLE_PERMISSIONS
from guard.access.services import issue_key
from guard.admission.blocks import block_actor, pause_agent
from guard.admission.budget import adjust_budget
from guard.admission.limits import set_limit
from guard.audit.models import AuditLog
from memory.core.models import CoreCustomer
from memory.erasure.holds import place_hold
from memory.profiles.models import CustomerProfileL3, ProfileVersion
from memory.sessions.models import AgentSession, MessageDeadLetter
from risk.alerts.models import AlertType
from risk.calendar.models import Holiday
from risk.conduct.models import Campaign
from risk.console.acts import ACTS
from risk.notify.models import NotifyChannel, NotifyDelivery, NotifyRule
from risk.rules.models import RiskRule
from tests.memory.sessions.helpers import make_session
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_manager,
    make_officer,
    make_operator,
    make_person,
)

pytestmark = pytest.mark.django_db

MAKE = {"officer": make_officer, "manager": make_manager, "auditor": make_auditor, "operator": make_operator}

# What a GET of each page answers to whom: those named see it (200, or 302 to where it belongs); all others are refused.
# `*`: everybody who may log in.
SEEN: dict[str, str] = {
    "index": "*",
    "login": "*",
    "password_change": "*",
    "password_change_done": "*",
    "jsi18n": "*",
    **dict.fromkeys(
        tuple(f"risk_riskalert_{page}" for page in ("changelist", "rows", "change", "view", "export")),
        "officer manager operator",
    ),
    **dict.fromkeys(("customers", "customer", "customer_unmask", "customer_version"), "officer manager"),
    "overview": "officer manager auditor operator",
    "risk_riskalert_since": "officer manager operator",
    "risk_riskalert_recent": "officer manager",
    **dict.fromkeys(("risk_riskalert_handover", "risk_riskalert_file"), "officer"),
    # a GET of an act leads to the page, which decides
    **{f"risk_riskalert_{act}": "*" for act in (*ACTS, "unmask", "bulk", "next", "casefile", "check")},
    "guard_auditlog_changelist": "auditor operator",
    "guard_auditlog_change": "auditor operator",
    "guard_auditlog_export": "auditor operator",
    "guard_agentprincipal_changelist": "operator",
    "guard_agentprincipal_add": "operator",
    "guard_agentprincipal_change": "operator",
    "guard_staffmember_changelist": "operator",
    "guard_staffmember_add": "operator",
    "guard_staffmember_change": "operator",
    "auth_user_changelist": "operator",
    "auth_user_add": "operator",
    "auth_user_change": "operator",
    "auth_user_password_change": "operator",
    "auth_group_changelist": "operator",
    "auth_group_change": "operator",
    "memory_messagedeadletter_changelist": "operator",
    "memory_messagedeadletter_change": "operator",
    # admission
    **dict.fromkeys((f"guard_admissionlimit_{page}" for page in ("changelist", "add", "change")), "operator"),
    **dict.fromkeys((f"guard_actorblock_{page}" for page in ("changelist", "add", "change")), "officer operator"),
    **dict.fromkeys(("guard_agentpause_changelist", "guard_agentpause_change"), "officer operator"),
    "guard_agentpause_add": "officer",
    **dict.fromkeys(("guard_budgetledger_changelist", "guard_budgetledger_change"), "manager operator"),
    "guard_budgetledger_add": "manager",
    "memory_erasurereceipt_changelist": "auditor operator",
    "memory_erasurereceipt_change": "auditor operator",
    "memory_legalhold_changelist": "auditor operator",
    "memory_legalhold_change": "auditor operator",
    "memory_advisordraft_changelist": "auditor",
    "memory_advisordraft_change": "auditor",
    # a GET of an act leads to the page, which decides
    **{f"memory_advisordraft_{act}": "*" for act in ("approve", "reject", "unmask")},
    "memory_analyticsquerylog_changelist": "auditor operator",
    "memory_analyticsquerylog_change": "auditor operator",
    "memory_analyticsquerylog_unmask": "*",
    "memory_analyticsgrant_changelist": "auditor operator",
    "memory_analyticsgrant_change": "auditor operator",
    "memory_analyticsgrant_add": "operator",
    # figures of rules: managers change them, officers and auditors look
    **dict.fromkeys((f"risk_riskrule_{page}" for page in ("changelist", "change", "draft")), "officer manager auditor"),
    # a GET of an act leads to the page, which decides
    **{f"risk_riskrule_{act}": "*" for act in ("save", "shadow", "activate", "drop", "backtest")},
    # which days are worked; what the house itself promotes
    **dict.fromkeys(("risk_holiday_changelist", "risk_holiday_change"), "officer manager operator"),
    **dict.fromkeys(("risk_holiday_add", "risk_holiday_delete"), "operator"),
    **dict.fromkeys(("risk_campaign_changelist", "risk_campaign_change"), "officer manager"),
    **dict.fromkeys(("risk_campaign_add", "risk_campaign_delete"), "officer"),
    # told outside: operators run channels, managers say what goes there
    **dict.fromkeys((f"risk_notify{of}_changelist" for of in ("channel", "rule", "delivery")), "manager operator"),
    **dict.fromkeys((f"risk_notify{of}_change" for of in ("channel", "rule", "delivery")), "manager operator"),
    "risk_notifychannel_add": "operator",
    **dict.fromkeys(("risk_notifyrule_add", "risk_notifyrule_delete"), "manager"),
}
# Only who may see an object sees its history; where there is no such object it says so, to everybody (302).
HISTORY = {
    "guard_agentprincipal": "operator",
    "guard_staffmember": "operator",
    "auth_user": "operator",
    "auth_group": "operator",
    "guard_auditlog": "auditor operator",
    "guard_admissionlimit": "operator",
    "guard_actorblock": "officer operator",
    "guard_agentpause": "officer operator",
    "guard_budgetledger": "manager operator",
    "memory_messagedeadletter": "operator",
    "memory_legalhold": "auditor operator",
    "risk_riskalert": "officer manager operator",
    "risk_riskrule": "officer manager auditor",
    "risk_holiday": "officer manager operator",
    "risk_campaign": "officer manager",
    **dict.fromkeys(("risk_notifychannel", "risk_notifyrule", "risk_notifydelivery"), "manager operator"),
}


def pages() -> Iterator[tuple[str, str]]:
    """Name and address with the placeholders in it of every page of the console."""
    for entry in admin.site.get_urls():
        if isinstance(entry, URLPattern):
            if entry.name and entry.name not in ("logout", "view_on_site", "autocomplete", "app_list"):
                yield entry.name, f"/admin/{entry.pattern}"
            continue
        for page in entry.url_patterns:
            if page.name:
                yield page.name, f"/admin/{entry.pattern}{page.pattern}"


@pytest.fixture
def objects() -> dict[str, str]:
    """One object of each kind that a person could open, by the beginning of its pages' names."""
    make_customer("C00017")
    alert = make_alert("C00017", alert_type=AlertType.DATA_QUALITY)
    someone = make_person("someone")
    member = StaffMember.objects.create(user=someone)
    make_session()
    CustomerProfileL3.objects.create(customer_id="C00017")
    letter = MessageDeadLetter.objects.create(tenant="default", stream_id="1-1", raw="{}", reason="refused")
    hold = place_hold(customer_id="C00017", by="legal", reason="a case")
    limit = set_limit(tenant="default", kind="rate", value=5, by="operator", actor_id="C00017")
    block = block_actor(tenant="default", actor_id="C00017", code="OFFICER", by="officer")
    pause = pause_agent(tenant="default", agent="risk", reason="wrong", by="officer")
    correction = adjust_budget(tenant="default", amount=Decimal(1), reason="late", by="manager", reference="r1")
    day = date(2026, 6, 15)
    campaign = Campaign.objects.create(product_id="F0101", starts_on=day, ends_on=day, name="Summer")
    channel = NotifyChannel.objects.create(name="desk", kind="webhook")
    return {
        "risk_holiday": str(Holiday.objects.create(day=day).pk),
        "risk_campaign": str(campaign.pk),
        "risk_notifychannel": channel.pk,
        "risk_notifyrule": str(NotifyRule.objects.create(channel=channel).pk),
        "risk_notifydelivery": NotifyDelivery.objects.create(channel=channel).pk,
        "risk_riskalert": alert.pk,
        "risk_riskrule": str(RiskRule.objects.create(rule_id="RISK-002", version=2).pk),
        "guard_agentprincipal": issue_key(agent="risk").principal.pk,
        "guard_auditlog": str(AuditLog.objects.values_list("pk", flat=True)[0]),
        "guard_staffmember": str(member.pk),
        "auth_user": str(someone.pk),
        "auth_group": str(Group.objects.values_list("pk", flat=True)[0]),
        "guard_admissionlimit": str(limit.pk),
        "guard_actorblock": str(block.pk),
        "guard_agentpause": str(pause.pk),
        "guard_budgetledger": str(correction.pk),
        "memory_messagedeadletter": str(letter.pk),
        "memory_legalhold": str(hold.pk),
        "memory_profileversion": str(ProfileVersion.objects.values_list("pk", flat=True)[0]),
        "memory_corecustomer": str(CoreCustomer.objects.values_list("pk", flat=True)[0]),
        "memory_agentsession": str(AgentSession.objects.values_list("pk", flat=True)[0]),
    }


def address(name: str, pattern: str, objects: dict[str, str]) -> str:
    if name.startswith("customer"):
        for placeholder, one in (("<str:kind>", "core"), ("<str:key>", objects["memory_corecustomer"])):
            pattern = pattern.replace(placeholder, one)
        return pattern.replace("<int:version_id>", objects["memory_profileversion"])
    kind = next((kind for kind in objects if name.startswith(f"{kind}_")), "")
    pattern = pattern.replace("<str:rule_id>", "RISK-002")
    for placeholder in ("<path:object_id>", "<str:alert_id>", "<id>", "<int:pk>"):
        pattern = pattern.replace(placeholder, objects.get(kind, "1"))
    return pattern.replace("<str:kind>", "csv")


def seen_by(name: str, role: str, objects: dict[str, str]) -> bool:
    kind, _, page = name.rpartition("_")
    if page == "history":
        return role in HISTORY.get(kind, "").split()
    who = SEEN.get(name, "")
    return who == "*" or role in who.split()


@pytest.mark.parametrize("role", MAKE)
def test_each_role_sees_its_pages_and_is_refused_all_others(role: str, objects: dict[str, str]) -> None:
    if role in ("officer", "manager"):
        objects["risk_riskalert"] = make_alert("C00017").pk  # a case; the operator sees faults in the data
    client = make_client(MAKE[role]())
    wrong = []
    for name, pattern in pages():
        before = AuditLog.objects.filter(event_type="authz", decision="forbidden").count()
        status = client.get(address(name, pattern, objects)).status_code
        rows = AuditLog.objects.filter(event_type="authz", decision="forbidden").count() - before
        expected = {200, 302} if seen_by(name, role, objects) else {403}
        if name == "risk_riskalert_file" and 200 in expected:
            expected = {404}  # no file of that name; whoever sees none is refused before that
        if name.endswith("_history") and name.removesuffix("_history") not in objects:
            expected = {302, 403}  # of what does not exist, everybody is told so
        if status not in expected or rows != (1 if status == 403 else 0):
            wrong.append((name, status, rows))
    assert wrong == []


@pytest.mark.parametrize("role", MAKE)
def test_no_role_posts_to_a_page_that_it_does_not_see(role: str, objects: dict[str, str]) -> None:
    client = make_client(MAKE[role]())
    wrong = []
    for name, pattern in pages():
        acts = name.startswith("risk_riskalert_") and SEEN.get(name) == "*"
        if (seen_by(name, role, objects) and not acts) or name.endswith("_history"):
            continue
        before = AuditLog.objects.count()
        status = client.post(address(name, pattern, objects), {"post": "yes"}).status_code
        if status != 403 and not (acts and role == "officer"):
            wrong.append((name, status))
        elif status == 403 and AuditLog.objects.count() != before + 1:
            wrong.append((name, "rows", AuditLog.objects.count() - before))
    assert wrong == []
    assert AuditLog.objects.filter(event_type="unmask", decision="granted").count() == 0


def actions() -> Iterator[tuple[str, str]]:
    """Address of the list and name of each action that a table declares."""
    for model, table in admin.site._registry.items():
        for action in table.actions or ():
            named = action if isinstance(action, str) else action.__name__
            yield f"/admin/{model._meta.app_label}/{model._meta.model_name}/", named


@pytest.mark.parametrize("role", ["officer", "manager", "auditor"])
def test_every_action_refuses_who_may_not_take_it(role: str, objects: dict[str, str]) -> None:
    """What auditors and managers may do to rows is nothing at all; officers act on alerts alone, and on blocks."""
    client = make_client(MAKE[role]())
    found = list(actions())
    assert ("/admin/guard/agentprincipal/", "rotate") in found
    assert ("/admin/memory/legalhold/", "release") in found
    for place, action in found:
        if role == "officer" and place.startswith(("/admin/guard/actorblock", "/admin/guard/agentpause")):
            continue
        before = AuditLog.objects.filter(event_type="authz").count()
        pk = objects.get("_".join(place.split("/")[2:4]), "1")
        answer = client.post(place, {"action": action, "_selected_action": pk, "sure": "1", "overlap": "0"})
        assert answer.status_code == 403, (place, action)
        assert AuditLog.objects.filter(event_type="authz").count() == before + 1, (place, action)


def test_who_is_not_logged_in_or_no_staff_sees_nothing(objects: dict[str, str]) -> None:
    make_person("guest")
    User.objects.filter(username="guest").update(is_staff=False)
    for client in (Client(), make_client(User.objects.get(username="guest"))):
        for name, pattern in pages():
            answer = client.get(address(name, pattern, objects))
            open_to_all = name in ("login", "jsi18n")
            assert open_to_all or answer.status_code == 302, name
            if not open_to_all:
                assert answer["Location"].startswith("/admin/login/"), name


# --- what stands in the pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["auditor", "operator"])
def test_auditors_and_operators_see_no_customer_in_clear(role: str, objects: dict[str, str]) -> None:
    client = make_client(MAKE[role]())
    for name, pattern in pages():
        if seen_by(name, role, objects) and not name.endswith(
            ("unmask", "claim", "release", "dispose", "reopen", "note")
        ):
            answer = client.get(address(name, pattern, objects))
            text = answer.getvalue() if answer.streaming else answer.content
            text = text.replace(b"T-C00017-", b"")  # the cast's trades are named so
            assert b"C00017" not in text, name
            assert "王建国".encode() not in text, name


def test_people_of_another_tenant_do_not_exist() -> None:
    """East's operator sees, changes and takes over nobody of west or of the default tenant."""
    client = make_client(make_operator("east-ops", tenant="east"))
    west, default = make_officer("western", tenant="west"), make_officer("anywhere")
    mate = make_officer("eastern", tenant="east")
    listed = client.get("/admin/auth/user/").content.decode()
    assert "eastern" in listed
    for other in (west, default):
        assert other.username not in listed
        assert client.get(f"/admin/auth/user/{other.pk}/change/").status_code == 302
        assert client.post(f"/admin/auth/user/{other.pk}/password/", {"password1": "x"}).status_code in (302, 404)
        client.post("/admin/guard/staffmember/add/", {"user": other.pk, "tenant": "east"})
        client.post(f"/admin/guard/staffmember/{other.pk}/change/", {"user": other.pk, "tenant": "east"})
    assert not StaffMember.objects.filter(user=default).exists()
    assert StaffMember.objects.get(user=west).tenant == "west"
    assert client.get(f"/admin/auth/user/{mate.pk}/change/").status_code == 200


def test_whom_an_operator_makes_is_of_their_tenant() -> None:
    client = make_client(make_operator("east-ops", tenant="east"))
    made = {"username": "newcomer", "usable_password": "true", "password1": "a long one 1", "password2": "a long one 1"}
    assert client.post("/admin/auth/user/add/", made).status_code == 302
    assert StaffMember.objects.get(user__username="newcomer").tenant == "east"


def test_nobody_gives_themselves_a_role() -> None:
    operator = make_operator()
    client = make_client(operator)
    officer = Group.objects.get(name="risk_officer")
    form = {
        "username": operator.username, "is_active": "on", "is_staff": "on", "groups": [officer.pk],
        "date_joined_0": now().strftime("%Y-%m-%d"), "date_joined_1": "00:00:00",
    }  # fmt: skip
    client.post(f"/admin/auth/user/{operator.pk}/change/", form)
    assert {group.name for group in operator.groups.all()} == {"platform_admin"}


def test_every_role_is_made_with_exactly_what_it_may() -> None:
    make_person("x")
    for role, names in ROLE_PERMISSIONS.items():
        held = {
            f"{one.content_type.app_label}.{one.codename}"
            for one in Group.objects.get(name=role).permissions.select_related("content_type")
        }
        assert held == set(names), role


def test_a_managers_post_to_an_act_is_refused_and_kept(objects: dict[str, str]) -> None:
    alert = make_alert("C00017")
    client = make_client(make_manager())
    for act in ("claim", "release", "dispose", "reopen", "note"):
        before = AuditLog.objects.filter(event_type="authz").count()
        answer: Any = client.post(f"/admin/risk/riskalert/{alert.pk}/{act}/", {"version": 0})
        assert answer.status_code == 403
        assert AuditLog.objects.filter(event_type="authz").count() == before + 1
