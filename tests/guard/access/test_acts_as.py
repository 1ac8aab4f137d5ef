"""Whom a person of the console is to the AI agents: said by somebody else who runs the platform, on the record."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from guard.access.models import StaffMember
from guard.access.roles import actor_of
from guard.audit.models import AuditLog
from tests.risk.console.make import make_client, make_officer, make_operator

pytestmark = pytest.mark.django_db
LIST = "/admin/guard/staffmember/"


def said() -> list[tuple[str, str]]:
    return list(AuditLog.objects.filter(code="ACTS_AS").order_by("id").values_list("decision", "object_id"))


def test_an_operator_says_as_whom_a_colleague_acts() -> None:
    ops, wang = make_operator("ops-1"), make_officer("m.wang")
    client = make_client(ops)
    client.post(f"{LIST}add/", {"user": wang.pk, "tenant": "default", "actor_id": "adv-17"})
    assert actor_of(wang) == "adv-17"
    client.post(f"{LIST}{wang.pk}/change/", {"user": wang.pk, "tenant": "default", "actor_id": ""})
    assert actor_of(wang) == ""
    assert said() == [("granted", "m.wang"), ("revoked", "m.wang")]


def test_nobody_says_so_of_themselves() -> None:
    ops = make_operator("ops-1")
    row, _made = StaffMember.objects.get_or_create(user=ops)
    StaffMember.objects.filter(pk=row.pk).update(actor_id="adv-17")
    client = make_client(ops)
    client.post(f"{LIST}{ops.pk}/change/", {"user": ops.pk, "tenant": "default", "actor_id": ""})
    assert actor_of(ops) == "adv-17"
    StaffMember.objects.filter(pk=row.pk).delete()
    client.post(f"{LIST}add/", {"user": ops.pk, "tenant": "default", "actor_id": "adv-18"})
    assert actor_of(User.objects.get(pk=ops.pk)) == ""
    assert said() == []


def test_an_actor_is_an_id() -> None:
    wang = make_officer("m.wang")
    answer = make_client(make_operator("ops-1")).post(f"{LIST}add/", {"user": wang.pk, "actor_id": "no id"})
    assert "A-Z a-z 0-9" in answer.content.decode()
    assert actor_of(wang) == ""
