"""What the tables of profiles show to people: masked lists of their tenant, and assessments as they stand today."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from config.base.clock import now
from guard.audit.models import AuditLog
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import CustomerProfileL1, ProfileVersion
from tests.memory.profiles.helpers import ALICE, BOB, make_assessment, make_core_customer

pytestmark = pytest.mark.django_db(transaction=True)


def make_root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def page(client: Client, path: str) -> Any:
    answer = client.get(f"/admin/memory/{path}")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize(("days", "said"), [(10, "valid"), (350, "expires within 30 days"), (400, "expired")])
def test_an_assessment_is_shown_as_it_stands_today(days: int, said: str) -> None:
    make_core_customer()
    make_assessment(at=now() - timedelta(days=days))
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    row = CustomerProfileL1.objects.get()
    assert f">{said}</div>" in page(make_root(), f"customerprofilel1/{row.pk}/change/")


def test_versions_are_listed_masked_in_their_tenant_and_each_look_at_one_is_recorded() -> None:
    CustomerProfileL1.objects.create(customer_id=ALICE, payload={"schema_version": 1, "occupation": "teacher"})
    CustomerProfileL1.objects.create(customer_id=BOB, tenant="acme")
    root = make_root()
    listed = page(root, "profileversion/")
    assert "cu***e" in listed
    assert ALICE not in listed
    assert "cu***b" not in listed
    mine, theirs = (ProfileVersion.objects.get(customer_id=name) for name in (ALICE, BOB))
    assert "teacher" in page(root, f"profileversion/{mine.pk}/change/")
    assert [(row.event_type, row.object_type) for row in AuditLog.objects.all()] == [("unmask", "profile_version")]
    assert root.get(f"/admin/memory/profileversion/{theirs.pk}/change/").status_code == 302
    for act in ("add/", f"{mine.pk}/delete/"):
        assert root.get(f"/admin/memory/profileversion/{act}").status_code == 403
    assert root.post(f"/admin/memory/profileversion/{mine.pk}/change/", {"author": "x"}).status_code == 403
