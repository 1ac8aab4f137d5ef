"""Holidays and campaigns are edited in the console: by whom, what it leaves behind, and what is judged anew."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.core.models import CoreProduct
from risk.calendar.models import Holiday
from risk.calendar.selectors import work_calendar
from risk.calendar.services import save_holiday
from risk.conduct.campaigns import save_campaign
from risk.conduct.models import Campaign
from risk.conduct.services import scan_conduct
from tests.risk.conduct.make import MINUTE, NOON, live, make_refusal, make_request, make_trade
from tests.risk.console.make import make_client, make_manager, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db

DAY = {"day": "2026-06-15", "kind": "holiday", "name": "Dragon Boat"}
SUMMER = {"product_id": "p5", "starts_on": "2026-06-15", "ends_on": "2026-06-15", "name": "Summer"}


def post(client: Any, page: str, body: dict[str, str]) -> int:
    return int(client.post(f"/admin/risk/{page}/", body).status_code)


def test_an_operator_adds_changes_and_deletes_a_holiday_and_the_day_is_judged_anew() -> None:
    for index in range(10):
        make_refusal(f"c{index % 2}", NOON + index * 2 * MINUTE)
    scan_conduct()
    client = make_client(make_operator())
    assert post(client, "holiday/add", DAY) == 302
    scan_conduct()
    assert [key for _rule, key, _trade in live()] == ["wei:2026-06-15:off_hours_burst"]
    assert not work_calendar(tenant="default").is_working_day(date(2026, 6, 15))
    row = Holiday.objects.get()
    assert post(client, f"holiday/{row.pk}/change", {**DAY, "day": "2026-06-16"}) == 302
    scan_conduct()
    assert live() == []
    assert post(client, f"holiday/{row.pk}/change", DAY) == 302
    scan_conduct()
    assert len(live()) == 1
    assert post(client, f"holiday/{row.pk}/delete", {"post": "yes"}) == 302
    scan_conduct()
    assert live() == []
    told = [row.input_summary["action"] for row in AuditLog.objects.filter(object_type="risk_holiday").order_by("id")]
    assert told == ["add", "change", "change", "delete"]


def test_a_day_is_in_the_table_once_and_each_tenant_has_its_own() -> None:
    client = make_client(make_operator())
    assert post(client, "holiday/add", DAY) == 302
    assert post(client, "holiday/add", DAY) == 200  # the form again, and no 500
    assert post(make_client(make_operator("north-ops", tenant="north")), "holiday/add", DAY) == 302
    assert sorted(Holiday.objects.values_list("tenant", flat=True)) == ["default", "north"]
    assert work_calendar(tenant="east").is_working_day(date(2026, 6, 15))


def test_an_officer_whitelists_a_campaign_and_what_it_let_pass_comes_back_with_its_end() -> None:
    CoreProduct.objects.create(product_id="p5", risk_level=3)
    for index in range(8):
        make_trade(f"t{index}", NOON + index * MINUTE, f"c{index}")
        make_request(f"t{index}", NOON + index * MINUTE)
    scan_conduct()
    assert len(live()) == 1
    client = make_client(make_officer())
    assert post(client, "campaign/add", SUMMER) == 302
    scan_conduct()
    assert live() == []
    row = Campaign.objects.get()
    moved = {**SUMMER, "starts_on": "2026-06-16", "ends_on": "2026-06-16"}
    assert post(client, f"campaign/{row.pk}/change", moved) == 302
    scan_conduct()
    assert len(live()) == 1
    assert post(client, f"campaign/{row.pk}/change", SUMMER) == 302
    assert post(client, f"campaign/{row.pk}/delete", {"post": "yes"}) == 302
    scan_conduct()
    assert len(live()) == 1
    wrong = {**SUMMER, "ends_on": "2026-06-01"}
    assert post(client, "campaign/add", wrong) == 200


def test_managers_operators_and_superusers_whitelist_nothing() -> None:
    for person in (make_manager(), make_operator(), make_person("root", superuser=True)):
        assert post(make_client(person), "campaign/add", SUMMER) == 403
        with pytest.raises(DomainError, match="FORBIDDEN"):
            save_campaign(
                campaign=Campaign(
                    product_id="p5", starts_on=date(2026, 6, 15), ends_on=date(2026, 6, 15), name="Summer"
                ),
                by=person,
            )
    assert not Campaign.objects.exists()


def test_a_person_of_another_tenant_changes_nothing_here() -> None:
    row = save_holiday(holiday=Holiday(day=date(2026, 6, 15)), by="ops")
    stranger = make_operator("north-ops", tenant="north")
    assert post(make_client(stranger), f"holiday/{row.pk}/change", DAY) in (302, 403)
    row.day += timedelta(days=1)
    with pytest.raises(DomainError, match="FORBIDDEN"):
        save_holiday(holiday=row, by=stranger)
    assert Holiday.objects.get().day == date(2026, 6, 15)
