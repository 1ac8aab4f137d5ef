"""Rules in the console: two managers, a draft, its trial, and everybody else who must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from risk.rules import trials
from risk.rules.models import Backtest, RiskRule
from risk.rules.ruling import ALL_MODULES, ruling
from risk.rules.services import scan
from tests.risk.console.make import make_auditor, make_client, make_manager, make_officer, make_operator, make_person
from tests.risk.rules.test_backtest import make_story

pytestmark = pytest.mark.django_db
LIST = "/admin/risk/riskrule/"
WHY = "the branch asked for it"


def sent(rule_id: str = "RISK-002", **figures: Any) -> dict[str, Any]:
    """The form as a browser sends it, with some figures changed."""
    from risk.rules.versions import complete

    found = {f"f-{name}": str(value) for name, value in complete(rule_id, {}).items()}
    return {**found, "reason": WHY, "on": "1", **{f"f-{name}": value for name, value in figures.items()}}


def make_draft(client: Client, rule_id: str = "RISK-002", **figures: Any) -> RiskRule:
    answer = client.post(f"{LIST}rule/{rule_id}/", sent(rule_id, **figures))
    assert answer.status_code == 302, answer.content
    row = RiskRule.objects.latest("id")
    assert answer["Location"] == f"{LIST}{row.pk}/change/"
    return row


def act(client: Client, row: RiskRule, verb: str, **more: Any) -> Any:
    return client.post(f"{LIST}{row.pk}/{verb}/", {"revision": row.revision, "seen_version": "1", **more}, follow=True)


def version_in_force(rule_id: str = "RISK-002") -> int:
    return next(rule.version for rule in ruling(tenant="default").active if rule.rule_id == rule_id)


def test_one_manager_drafts_and_another_activates() -> None:
    meng, bo = make_client(make_manager()), make_client(make_manager("bo"))
    page = meng.get(LIST).content.decode()
    for rule_id in ALL_MODULES:
        assert reverse("admin:risk_riskrule_draft", args=[rule_id]) in page
    row = make_draft(meng, product_limit="0.45")
    page = meng.get(f"{LIST}{row.pk}/change/").content.decode()
    assert "somebody else activates it" in page
    assert "/activate/" not in page
    page = bo.get(f"{LIST}{row.pk}/change/").content.decode()
    assert "/activate/" in page
    assert page.count('class="offending"') == 1, "one figure differs from what is in force"
    answer = act(bo, row, "activate")
    assert "It is in force." in answer.content.decode()
    assert version_in_force() == 2
    assert "Draft with these figures" in answer.content.decode()
    again = bo.get(f"{LIST}rule/RISK-002/?from=1").content.decode()
    assert 'value="0.4"' in again


def test_a_direct_post_of_the_same_person_is_refused_in_a_sentence() -> None:
    meng = make_client(make_manager())
    row = make_draft(meng, product_limit="0.45")
    answer = act(meng, row, "activate")
    assert answer.status_code == 403
    assert "You have set figures of this version: somebody else activates it." in answer.content.decode()
    assert version_in_force() == 1
    assert AuditLog.objects.filter(event_type="rule_change", decision="refused").count() == 1


@pytest.mark.parametrize("make", [make_officer, make_auditor, make_operator])
@pytest.mark.parametrize("verb", ["save", "shadow", "activate", "drop", "backtest"])
def test_other_roles_do_nothing_by_direct_post(make: Any, verb: str) -> None:
    row = make_draft(make_client(make_manager()), product_limit="0.45")
    other = make_client(make())
    answer = act(other, row, verb, **sent(product_limit="0.46"))
    assert answer.status_code in (403, 404)
    row.refresh_from_db()
    assert (row.status, row.revision, row.params["product_limit"]) == ("draft", 1, "0.45")
    assert not Backtest.objects.exists()
    assert other.post(f"{LIST}rule/RISK-002/", sent(product_limit="0.46")).status_code == 403
    assert RiskRule.objects.count() == 1


def test_who_looks_sees_figures_and_no_controls() -> None:
    row = make_draft(make_client(make_manager()), product_limit="0.45")
    for client in (make_client(make_officer()), make_client(make_auditor())):
        for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}rule/RISK-002/"):
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert b"Save draft" not in answer.content
            assert b"/activate/" not in answer.content
    operator = make_client(make_operator())
    for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}rule/RISK-002/"):
        assert operator.get(address).status_code == 403, address


def test_a_superuser_without_the_role_looks_on() -> None:
    row = make_draft(make_client(make_manager()), product_limit="0.45")
    root = make_client(make_person("root", superuser=True))
    assert root.get(f"{LIST}{row.pk}/change/").status_code == 200
    assert act(root, row, "activate").status_code == 403
    assert version_in_force() == 1


def test_another_tenants_versions_do_not_exist() -> None:
    row = make_draft(make_client(make_manager()), product_limit="0.45")
    guest = make_client(make_manager("guest", tenant="other"))
    assert guest.get(f"{LIST}{row.pk}/change/").status_code == 404
    for verb in ("save", "shadow", "activate", "drop", "backtest"):
        assert act(guest, row, verb).status_code == 404
    assert "0.45" not in guest.get(f"{LIST}rule/RISK-002/").content.decode()
    assert make_draft(guest, product_limit="0.46").tenant == "other"


@pytest.mark.parametrize("value", ["NaN", "1e999", "-0.4", "40", "", "0,4", "٠.٤", "1" * 64, "<b>"])
def test_a_figure_that_cannot_be_is_marked_and_what_was_typed_stays(value: str) -> None:
    meng = make_client(make_manager())
    answer = meng.post(f"{LIST}rule/RISK-002/", sent(product_limit=value, issuer_limit="0.55"))
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "A number from 0.01 to 0.99, with at most 6 decimals." in page
    assert 'value="0.55"' in page
    assert "<b>" not in page.split("x-rule")[1].split("</table>")[0].replace('<b class="num">', "")
    assert not RiskRule.objects.exists()
    row = make_draft(meng, product_limit="0.45")
    answer = act(meng, row, "save", **sent(product_limit=value))
    assert answer.status_code == 422
    assert "A number from 0.01 to 0.99" in answer.content.decode()


def test_nothing_changed_is_not_saved_and_no_reason_neither() -> None:
    meng = make_client(make_manager())
    answer = meng.post(f"{LIST}rule/RISK-002/", sent())
    assert (answer.status_code, "Nothing was saved" in answer.content.decode()) == (409, True)
    answer = meng.post(f"{LIST}rule/RISK-002/", {**sent(product_limit="0.45"), "reason": "x"})
    assert (answer.status_code, "10 to 500 characters" in answer.content.decode()) == (422, True)
    answer = meng.post(f"{LIST}rule/RISK-005/", sent("RISK-005", base="91"))
    assert "It contradicts another figure" in answer.content.decode()


def test_what_changed_since_is_told() -> None:
    meng, bo = make_client(make_manager()), make_client(make_manager("bo"))
    row = make_draft(meng, product_limit="0.45")
    act(meng, row, "save", **sent(product_limit="0.46"))
    answer = act(bo, row, "activate")
    assert (answer.status_code, "has changed since you looked" in answer.content.decode()) == (409, True)
    row.refresh_from_db()
    assert act(bo, row, "activate", seen_version="7").status_code == 409
    assert act(bo, row, "activate", revision="x").status_code == 409
    assert version_in_force() == 1


def test_shadow_and_backtest_on_the_page(tmp_path: Path) -> None:
    make_story(tmp_path)
    meng = make_client(make_manager())
    row = make_draft(meng, product_limit="0.45")
    page = act(meng, row, "shadow").content.decode()
    assert 'id="shadow"' in page
    assert "not judged yet" in page
    scan()
    assert not CoreChange.objects.exists()
    act(meng, row, "backtest", first="2026-06-01", last="2026-06-30")
    trials.run_waiting()
    page = meng.get(f"{LIST}{row.pk}/change/").content.decode()
    assert "not judged yet" not in page
    for words in ("confirmed alerts lost", "2 / 5", "1 / 2", "71.4 % → 75.0 %", "t-c1", "confirmed, lost"):
        assert words in page, words
    for name in ("c1", "c9"):
        assert f">{name}<" not in page, "no customer is named"
    answer = act(meng, row, "backtest", first="2026-06-30", last="2026-06-01")
    assert answer.status_code == 422
    assert act(meng, row, "backtest", first="9999-12-31").status_code == 422


def test_days_of_a_backtest_that_cannot_be_are_marked_and_stay() -> None:
    meng = make_client(make_manager())
    row = make_draft(meng, product_limit="0.45")
    for first, last, field, words in (
        ("2026-06-30", "2026-06-01", "last", "The last day lies before the first."),
        ("0001-01-01", "2026-06-01", "first", "This is no day between 1970 and 9998."),
        ("2026-06-01", "9999-12-31", "last", "This is no day between 1970 and 9998."),
        ("x", "", "first", "This is no day between 1970 and 9998."),
    ):
        answer = act(meng, row, "backtest", first=first, last=last)
        page = answer.content.decode()
        assert answer.status_code == 422
        assert page.count("aria-invalid") == 1
        assert f'aria-describedby="e-{field}"' in page
        assert words in page
        assert f'value="{first}"' in page
        assert not last or f'value="{last}"' in page
    assert not Backtest.objects.exists()


def test_figures_are_typed_on_a_page_without_acts() -> None:
    """Who types a figure into somebody's draft and presses Activate would put the stored one into force."""
    row = make_draft(make_client(make_manager()), product_limit="0.45")
    bo = make_client(make_manager("bo"))
    address = f"{LIST}{row.pk}/change/"
    page = bo.get(address).content.decode()
    assert 'name="f-product_limit"' not in page
    assert f"{address}?edit=1" in page
    acts = [f"{LIST}{row.pk}/{verb}/" for verb in ("activate", "shadow", "drop", "backtest")]
    assert all(act in page for act in acts)
    editing = bo.get(f"{address}?edit=1").content.decode()
    refused = act(bo, row, "save", **sent(product_limit="40")).content.decode()
    for page in (editing, refused):
        assert 'name="f-product_limit"' in page
        assert not any(act in page for act in acts)
    assert 'name="f-product_limit"' not in make_client(make_auditor()).get(f"{address}?edit=1").content.decode()
    act(bo, row, "activate")
    assert version_in_force() == 2
    assert 'name="f-product_limit"' not in bo.get(f"{address}?edit=1").content.decode()


def test_a_reason_without_a_sign_is_marked() -> None:
    answer = make_client(make_manager()).post(
        f"{LIST}rule/RISK-002/", {**sent(product_limit="0.45"), "reason": "\u200b" * 12}
    )
    assert (answer.status_code, "10 to 500 characters" in answer.content.decode()) == (422, True)


def test_damaged_figures_are_shown_as_such_and_can_be_replaced() -> None:
    meng, bo = make_client(make_manager()), make_client(make_manager("bo"))
    row = make_draft(meng, product_limit="0.45")
    act(bo, row, "activate")
    RiskRule.objects.filter(pk=row.pk).update(params=[1])
    for address in (LIST, f"{LIST}rule/RISK-002/"):
        assert ">damaged<" in meng.get(address).content.decode()
    assert "cannot be read" in meng.get(f"{LIST}{row.pk}/change/").content.decode()
    assert meng.get(f"{LIST}rule/RISK-002/?from=2").status_code == 200
    mended = make_draft(meng, product_limit="0.45")
    act(bo, mended, "activate", seen_version="2")
    assert version_in_force() == 3


def test_the_limits_of_003_are_not_on_the_page_of_004() -> None:
    page = make_client(make_manager()).get(f"{LIST}rule/RISK-004/").content.decode()
    assert "f-near" in page
    assert "f-cash_cny" not in page
    assert "The limits are those of RISK-003" in page
    answer = make_client(make_manager("bo")).post(f"{LIST}rule/RISK-004/", sent("RISK-004", near="0.7", cash_cny="1"))
    assert answer.status_code == 422


def test_addresses_that_are_none() -> None:
    meng = make_client(make_manager())
    for address in ("rule/RISK-009/", "rule/RISK-002/?from=9", "99/change/", "x/change/", "99/activate/"):
        assert meng.get(LIST + address).status_code == 404, address
    row = make_draft(meng, product_limit="0.45")
    assert meng.get(f"{LIST}{row.pk}/activate/").status_code == 302
    assert version_in_force() == 1


def test_pages_cost_the_same_with_many_versions(django_assert_max_num_queries: Any) -> None:
    meng, bo = make_manager(), make_client(make_manager("bo"))
    for number in range(12):
        row = make_draft(make_client(meng), product_limit=f"0.{41 + number}")
        row.refresh_from_db()
        act(bo, row, "activate", seen_version=str(version_in_force()))
    assert version_in_force() == 13
    with django_assert_max_num_queries(16):
        bo.get(LIST)
    with django_assert_max_num_queries(16):
        bo.get(f"{LIST}{row.pk}/change/")
    with django_assert_max_num_queries(16):
        bo.get(f"{LIST}rule/RISK-002/")
