"""The console's pages of receipts and holds: who sees them, what they show, who releases."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from guard.access.roles import COMPLIANCE_AUDITOR, PLATFORM_ADMIN, RISK_OFFICER
from memory.erasure.holds import place_hold
from memory.erasure.models import ErasureReceipt, LegalHold
from tests.memory.erasure.helpers import ALICE_ID, BOB_ID, erase

pytestmark = pytest.mark.django_db(transaction=True)


def login(role: str) -> Client:
    user = User.objects.create_user(f"{role}-1", password="x", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:memory_{name}", args=args)


@pytest.fixture(autouse=True)
def roles() -> None:
    from guard.access.roles import ensure_roles

    ensure_roles()  # the tables are emptied between tests


def test_receipts_are_read_by_those_who_answer_for_them() -> None:
    erase()
    receipt = ErasureReceipt.objects.get()
    for role, status in ((COMPLIANCE_AUDITOR, 200), (PLATFORM_ADMIN, 200), (RISK_OFFICER, 403)):
        client = login(role)
        assert client.get(page("erasurereceipt_changelist")).status_code == status
        assert client.get(page("erasurereceipt_change", receipt.pk)).status_code == status
    shown = client.get(page("erasurereceipt_add"))
    assert shown.status_code == 403
    body = login_body(receipt.pk)
    assert receipt.subject in body
    assert "audit_log" in body
    assert ALICE_ID not in body


def login_body(pk: int) -> str:
    client = Client()
    client.force_login(User.objects.get(username=f"{COMPLIANCE_AUDITOR}-1"))
    return client.get(page("erasurereceipt_change", pk)).content.decode()


def test_holds_are_masked_and_released_by_the_platforms_admins_alone() -> None:
    hold = place_hold(customer_id=BOB_ID, by="counsel", reason="case 7")
    elsewhere = place_hold(customer_id=BOB_ID, by="counsel", reason="other's", tenant="other")
    release = {"action": "release", "_selected_action": [hold.pk, elsewhere.pk]}

    auditor = login(COMPLIANCE_AUDITOR)
    body = auditor.get(page("legalhold_changelist")).content.decode()
    assert "case 7" in body
    assert "other&#x27;s" not in body
    assert BOB_ID not in body
    auditor.post(page("legalhold_changelist"), release)
    assert LegalHold.objects.filter(released_at=None).count() == 2

    admin = login(PLATFORM_ADMIN)
    assert admin.post(page("legalhold_changelist"), release).status_code == 302
    hold.refresh_from_db()
    assert hold.released_by == "platform_admin-1"
    assert LegalHold.objects.get(pk=elsewhere.pk).released_at is None
