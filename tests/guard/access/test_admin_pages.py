"""Keys and people in the admin: shown once, revoked by service, each role recorded."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, User

from config.base.errors import DomainError
from guard.access.models import AgentPrincipal
from guard.access.roles import RISK_OFFICER
from guard.access.services import authenticate, issue_key
from guard.audit.models import AuditLog
from tests.risk.console.make import make_client, make_manager, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db
KEYS = "/admin/guard/agentprincipal/"


def test_a_key_is_shown_once_and_works() -> None:
    client = make_client(make_operator(tenant="east"))
    response = client.post(f"{KEYS}add/", {"agent": "risk", "actor_id": "", "expires_days": "30", "note": "nightly"})
    key = re.search(r"xh_[A-Za-z0-9_-]+", response.content.decode())
    assert key is not None
    assert "no-store" in response["Cache-Control"]
    assert authenticate(key=key[0], actor_id="R1").tenant == "east"
    principal = AgentPrincipal.objects.get()
    for page in (KEYS, f"{KEYS}{principal.pk}/change/"):
        text = client.get(page).content.decode()
        assert key[0] not in text
        assert principal.key_digest not in text
    row = AuditLog.objects.get(event_type="principal")
    assert (row.actor_id, row.decision, row.tenant) == ("ops", "issued", "east")


@pytest.mark.parametrize(
    "data", [{"agent": "nobody"}, {"agent": "risk", "actor_id": "a:b"}, {"agent": "risk", "expires_days": "0"}]
)
def test_a_wrong_wish_issues_nothing(data: dict[str, str]) -> None:
    response = make_client(make_operator()).post(f"{KEYS}add/", data)
    assert response.status_code == 200
    assert not AgentPrincipal.objects.exists()


def test_revoking_is_an_action_and_a_button() -> None:
    client = make_client(make_operator())
    first, second = issue_key(agent="risk"), issue_key(agent="risk")
    client.post(KEYS, {"action": "revoke", "_selected_action": first.principal.pk})
    client.post(f"{KEYS}{second.principal.pk}/change/", {"revoke": "1"})
    for issued in (first, second):
        with pytest.raises(DomainError) as refusal:
            authenticate(key=issued.key, actor_id="R1")
        assert refusal.value.code == "KEY_REVOKED"
    assert AuditLog.objects.filter(event_type="principal", decision="revoked", actor_id="ops").count() == 2


def test_another_tenants_keys_cannot_be_revoked() -> None:
    issued = issue_key(agent="risk", tenant="west")
    client = make_client(make_operator(tenant="east"))
    client.post(KEYS, {"action": "revoke", "_selected_action": issued.principal.pk})
    client.post(f"{KEYS}{issued.principal.pk}/change/", {"revoke": "1"})
    assert authenticate(key=issued.key, actor_id="R1").tenant == "west"


@pytest.mark.parametrize("make", [make_officer, make_manager])
def test_officers_and_managers_have_nothing_to_do_with_keys(make: object) -> None:
    client = make_client(make())  # type: ignore[operator]
    for address in (KEYS, f"{KEYS}add/", "/admin/auth/user/", "/admin/guard/staffmember/"):
        assert client.get(address).status_code == 403, address
    assert client.post(f"{KEYS}add/", {"agent": "risk"}).status_code == 403


def person_form(person: User, *roles: str, **fields: object) -> dict[str, object]:
    joined = person.date_joined
    return {
        "username": person.username, "first_name": "", "last_name": "", "email": "", "is_active": "on",
        "is_staff": "on", "groups": [Group.objects.get(name=role).pk for role in roles],
        "date_joined_0": joined.strftime("%Y-%m-%d"), "date_joined_1": joined.strftime("%H:%M:%S"),
        "_save": "Save", **fields,
    }  # fmt: skip


def test_a_role_given_or_taken_is_recorded() -> None:
    client, person = make_client(make_operator()), make_person("new")
    address = f"/admin/auth/user/{person.pk}/change/"
    assert client.post(address, person_form(person, RISK_OFFICER)).status_code == 302
    assert person.groups.get().name == RISK_OFFICER
    assert client.post(address, person_form(person)).status_code == 302
    rows = AuditLog.objects.filter(event_type="role", object_id="new").order_by("id")
    assert [(row.actor_id, row.decision, row.code) for row in rows] == [
        ("ops", "granted", RISK_OFFICER),
        ("ops", "revoked", RISK_OFFICER),
    ]


def test_an_operator_makes_nobody_a_superuser_and_touches_none() -> None:
    client, person, root = make_client(make_operator()), make_person("new"), make_person("root", superuser=True)
    client.post(f"/admin/auth/user/{person.pk}/change/", person_form(person, is_superuser="on"))
    person.refresh_from_db()
    assert not person.is_superuser
    client.post(f"/admin/auth/user/{root.pk}/change/", person_form(root, is_active=""))
    root.refresh_from_db()
    assert root.is_active
    assert client.post(f"/admin/auth/user/{root.pk}/password/", {"password1": "x"}).status_code == 403


def test_nobody_is_deleted() -> None:
    root, person = make_client(make_person("root", superuser=True)), make_person("new")
    assert root.post(f"/admin/auth/user/{person.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_password_that_somebody_else_sets_is_recorded_and_so_is_who_may_log_in() -> None:
    client, person = make_client(make_operator()), make_person("new")
    passwords = {"password1": "a long one 1", "password2": "a long one 1", "usable_password": "true"}
    assert client.post(f"/admin/auth/user/{person.pk}/password/", passwords).status_code == 302
    row = AuditLog.objects.get(event_type="principal")
    assert (row.decision, row.object_type, row.object_id, row.code) == ("rotated", "user", "new", "PASSWORD")
    assert "a long one" not in repr(row.__dict__)
    wrong = {**passwords, "password2": "another"}
    assert client.post(f"/admin/auth/user/{person.pk}/password/", wrong).status_code == 200
    assert AuditLog.objects.filter(event_type="principal").count() == 1
    form = person_form(person)
    del form["is_active"]
    client.post(f"/admin/auth/user/{person.pk}/change/", form)
    [row] = AuditLog.objects.filter(event_type="role")
    assert (row.decision, row.code, row.object_id) == ("revoked", "active", "new")
