"""One person drafts the figures of a rule and another puts them into force; whoever comes second is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.roles import COMPLIANCE_AUDITOR, PLATFORM_ADMIN, RISK_OFFICER
from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.rules import marking, versions
from risk.rules.models import RiskRule, RuleStatus
from risk.rules.ruling import damaged_versions, ruling
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, TRADE, a_small_core, load
from tests.risk.alerts.people import make_manager, make_person
from tests.threads import Threads

WHY = "the branch asked for it, see the minutes"


def make_draft(by: User, rule: str = "RISK-001", why: str = WHY, **params: Any) -> RiskRule:
    return versions.draft_version(tenant="default", rule_id=rule, params=params, reason=why, by=by)


def activate(row: RiskRule, by: User, seen: int | None = 1, revision: int = 0) -> RiskRule:
    return versions.activate(tenant=row.tenant, pk=row.pk, revision=revision or row.revision, seen_version=seen, by=by)


def refused(code: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        work(*args, **kwargs)
    assert caught.value.code == code, caught.value.detail
    return caught.value


def in_force(rule: str = "RISK-001", tenant: str = "default") -> tuple[int, Any] | None:
    rules = {rule.rule_id: (rule.version, rule.params) for rule in ruling(tenant=tenant).active}
    return rules.get(rule)


def told(decision: str) -> list[dict[str, Any]]:
    rows = AuditLog.objects.filter(event_type="rule_change", decision=decision).order_by("id")
    return [{"by": row.actor_id, "object": row.object_id, "code": row.code, **row.input_summary} for row in rows]


pytestmark = pytest.mark.django_db


def test_one_drafts_another_activates_and_the_old_version_retires() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    row = make_draft(mei, mismatch_base="55")
    assert (row.version, row.status, row.base_version) == (2, RuleStatus.DRAFT, 1)
    version, params = in_force() or (0, None)
    assert (version, params.mismatch_base) == (1, 50), "a draft is not in force"
    activate(row, bo)
    version, params = in_force() or (0, None)
    assert (version, params.mismatch_base) == (2, 55)
    third = make_draft(bo, missing=71)
    assert third.params["mismatch_base"] == 55, "a draft begins with the figures in force"
    activate(third, mei, seen=2)
    row.refresh_from_db()
    assert (row.status, row.active_slot, row.retired_by) == (RuleStatus.RETIRED, None, mei)
    assert in_force()[0] == 3  # type: ignore[index]
    assert told("drafted")[0]["changes"] == {"mismatch_base": [50, 55]}
    assert [(one["by"], one["object"], one["instead_of"]) for one in told("activated")] == [
        ("bo", "RISK-001@2", 1), ("mei", "RISK-001@3", 2),
    ]  # fmt: skip
    assert [one["object"] for one in told("retired")] == ["RISK-001@2"]


def test_who_set_a_figure_does_not_activate() -> None:
    mei, bo, chen = make_manager("mei"), make_manager("bo"), make_manager("chen")
    row = make_draft(mei, mismatch_base=55)
    assert refused("RULE_OWN_VERSION", activate, row, mei).status == 403
    row = versions.edit_draft(tenant="default", pk=row.pk, revision=1, params={"missing": 71}, reason=WHY, by=bo)
    refused("RULE_OWN_VERSION", activate, row, mei)
    refused("RULE_OWN_VERSION", activate, row, bo)
    assert [one["code"] for one in told("refused")] == ["RULE_OWN_VERSION"] * 3
    assert told("refused")[0]["object"] == "RISK-001@2"
    assert in_force()[0] == 1  # type: ignore[index]
    activate(row, chen)
    assert in_force()[0] == 2  # type: ignore[index]


@pytest.mark.parametrize("role", [RISK_OFFICER, COMPLIANCE_AUDITOR, PLATFORM_ADMIN, ""])
def test_other_roles_neither_draft_nor_activate(role: str) -> None:
    row = make_draft(make_manager("mei"), mismatch_base=55)
    other = make_person("zhou", role)
    refused("FORBIDDEN", make_draft, other, mismatch_base=56)
    refused("FORBIDDEN", activate, row, other)
    for act in (versions.put_in_shadow, versions.drop):
        refused("FORBIDDEN", act, tenant="default", pk=row.pk, revision=1, by=other)
    refused(
        "FORBIDDEN", versions.edit_draft,
        tenant="default", pk=row.pk, revision=1, params={"missing": 1}, reason=WHY, by=other,
    )  # fmt: skip
    assert AuditLog.objects.filter(event_type="authz", actor_id="zhou", object_type="risk_rule").count() == 5
    row.refresh_from_db()
    assert row.status == RuleStatus.DRAFT


def test_a_superuser_without_the_role_decides_nothing() -> None:
    row = make_draft(make_manager("mei"), mismatch_base=55)
    root = make_person("root", "")
    root.is_superuser = True
    root.save()
    refused("FORBIDDEN", activate, row, root)


def test_another_tenants_version_does_not_exist() -> None:
    row = make_draft(make_manager("mei"), mismatch_base=55)
    guest = make_person("guest", "risk_manager", tenant="other")
    refused("FORBIDDEN", activate, row, guest)
    foreign = {"tenant": "other", "pk": row.pk, "revision": 1, "by": guest}
    refused("RULE_NOT_FOUND", versions.activate, **foreign, seen_version=1)
    refused("RULE_NOT_FOUND", versions.drop, **foreign)
    refused("FORBIDDEN", make_draft, guest, mismatch_base=56)
    own = versions.draft_version(tenant="other", rule_id="RISK-001", params={"missing": 1}, reason=WHY, by=guest)
    assert own.version == 2, "tenants number by themselves"
    activate(row, make_manager("bo"))
    assert in_force(tenant="other")[0] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("rule", "name", "value", "says"),
    [
        ("RISK-001", "mismatch", 1, "does not exist; use confirmed"),
        ("RISK-001", "mismatch_base", "", "it is a whole number"),
        ("RISK-001", "mismatch_base", "50.5", "it is a whole number"),
        ("RISK-001", "mismatch_base", 50.0, "it is a whole number"),
        ("RISK-001", "mismatch_base", True, "it is a whole number"),
        ("RISK-001", "mismatch_base", None, "it is a whole number"),
        ("RISK-001", "mismatch_base", [1], "it is a whole number"),
        ("RISK-001", "mismatch_base", -1, "it lies between 0 and 100"),
        ("RISK-001", "mismatch_base", 101, "it lies between 0 and 100"),
        pytest.param("RISK-001", "mismatch_base", 10**5000, "it is a whole number", id="huge"),
        ("RISK-001", "validity_months", 0, "it lies between 1 and 120"),
        ("RISK-002", "product_limit", float("nan"), "a decimal"),
        ("RISK-002", "product_limit", float("inf"), "a decimal"),
        ("RISK-002", "product_limit", "NaN", "a decimal"),
        ("RISK-002", "product_limit", "1e999", "a decimal"),
        ("RISK-002", "product_limit", "1e999999999", "a decimal"),
        ("RISK-002", "product_limit", "2/5", "a decimal"),
        ("RISK-002", "product_limit", "٠.٤", "a decimal"),
        ("RISK-002", "product_limit", "0.4000001", "a decimal"),
        ("RISK-002", "product_limit", "-0.4", "it lies between 0.01 and 0.99"),
        ("RISK-002", "product_limit", 1, "it lies between 0.01 and 0.99"),
        ("RISK-002", "product_limit", "40", "it lies between 0.01 and 0.99"),
        ("RISK-005", "min_equity", 0, "it lies between 1"),
        ("RISK-005", "base", 91, "it lies not above cap, which is 90"),
        ("RISK-007", "old_age", 60, "it lies not above old_age, which is 60"),
        ("RISK-004", "near", "1.01", "it lies between 0.000001 and 1"),
        ("RISK-004", "cash_cny", 40_000, "is RISK-003's: change it there, and RISK-004 follows"),
    ],
)
def test_figures_that_cannot_be_are_refused_by_name(rule: str, name: str, value: Any, says: str) -> None:
    error = refused("INVALID_REQUEST", make_draft, make_manager(), rule, **{name: value})
    assert says in error.detail
    assert len(error.detail) < 1100
    assert list(error.extra["fields"]) == ["elderly_age" if name == "old_age" else name]
    assert not RiskRule.objects.exists()
    assert told("refused")[0]["code"] == "INVALID_REQUEST"


def test_what_changes_nothing_is_refused() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    refused("RULE_UNCHANGED", make_draft, mei)
    refused("RULE_UNCHANGED", make_draft, mei, "RISK-002", product_limit="0.40")
    row, same = make_draft(mei, mismatch_base=55), make_draft(mei, mismatch_base=55)
    edit = {"tenant": "default", "pk": row.pk, "revision": 1, "by": mei}
    refused("RULE_UNCHANGED", versions.edit_draft, **edit, params={}, reason=WHY)
    refused("RULE_UNCHANGED", versions.edit_draft, **edit, params={"mismatch_base": 50}, reason=WHY)
    refused("INVALID_REQUEST", versions.edit_draft, **edit, params={"missing": 71}, reason="short")
    activate(row, bo)
    refused("RULE_UNCHANGED", activate, same, bo, seen=2)


def test_an_older_version_comes_back_as_a_copy() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    activate(make_draft(mei, mismatch_base=55), bo)
    again = {"tenant": "default", "rule_id": "RISK-001", "params": {}, "reason": WHY, "by": mei}
    refused("RULE_UNCHANGED", versions.draft_version, **again, base_version=2)
    refused("RULE_NOT_FOUND", versions.draft_version, **again, base_version=9)
    first = versions.draft_version(**again, base_version=1)
    assert (first.version, first.params["mismatch_base"], first.base_version) == (3, 50, 1)
    activate(first, bo, seen=2)
    third = versions.draft_version(**again, base_version=2)
    assert (third.version, third.params["mismatch_base"]) == (4, 55)


def test_a_rule_is_switched_off_by_a_version_that_another_activates() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    off = versions.draft_version(
        tenant="default", rule_id="RISK-001", params={}, reason=WHY, by=mei, is_on=False
    )  # fmt: skip
    error = refused("RULE_STATUS", versions.put_in_shadow, tenant="default", pk=off.pk, revision=1, by=mei)
    assert "off" in error.detail
    activate(off, bo)
    assert in_force() is None
    refused("RULE_STATUS", versions.drop, tenant="default", pk=off.pk, revision=1, by=bo)
    on = make_draft(mei, mismatch_base=51)
    activate(on, bo, seen=2)
    assert in_force()[0] == 3  # type: ignore[index]


def test_dropping_a_draft_leaves_the_rule_on() -> None:
    mei = make_manager()
    row = make_draft(mei, mismatch_base=55)
    versions.drop(tenant="default", pk=row.pk, revision=1, by=mei)
    assert in_force()[0] == 1  # type: ignore[index]
    refused("RULE_STATUS", activate, row, make_manager("bo"))
    refused(
        "RULE_STATUS", versions.edit_draft,
        tenant="default", pk=row.pk, revision=1, params={"missing": 1}, reason=WHY, by=mei,
    )  # fmt: skip
    assert make_draft(mei, mismatch_base=56).version == 3, "a number is given once"


def test_what_was_edited_or_overtaken_since_one_looked_is_not_activated() -> None:
    mei, bo, chen = make_manager("mei"), make_manager("bo"), make_manager("chen")
    row, rival = make_draft(mei, mismatch_base=55), make_draft(mei, missing=71)
    versions.edit_draft(tenant="default", pk=row.pk, revision=1, params={"lowest": 96}, reason=WHY, by=mei)
    error = refused("VERSION_CONFLICT", activate, row, bo, revision=1)
    assert "revision 2" in error.detail
    activate(rival, chen)
    error = refused("VERSION_CONFLICT", activate, row, bo, seen=1, revision=2)
    assert "version 3 is in force now, not 1" in error.detail
    refused(
        "VERSION_CONFLICT", versions.edit_draft,
        tenant="default", pk=row.pk, revision=1, params={"missing": 1}, reason=WHY, by=mei,
    )  # fmt: skip
    activate(row, bo, seen=3, revision=2)


def test_limits_of_004_are_those_of_003_whatever_is_stored() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    RiskRule.objects.create(
        rule_id="RISK-004", version=2, status=RuleStatus.ACTIVE, active_slot="RISK-004",
        params={"cash_cny": 1, "near": "0.7"},
    )  # fmt: skip
    assert (in_force("RISK-004")[1].cash_cny, in_force("RISK-004")[1].near) == (50_000, Fraction(7, 10))  # type: ignore[index]
    activate(make_draft(mei, "RISK-003", cash_cny=40_000), bo)
    assert in_force("RISK-003")[1].cash_cny == in_force("RISK-004")[1].cash_cny == 40_000  # type: ignore[index]
    off = versions.draft_version(tenant="default", rule_id="RISK-003", params={}, reason=WHY, by=mei, is_on=False)
    activate(off, bo, seen=2)
    assert in_force("RISK-003") is None
    assert in_force("RISK-004")[1].cash_cny == 40_000, "the limits stay what they were"  # type: ignore[index]


def test_rules_and_shadows_are_one_query(django_assert_num_queries: Any) -> None:
    mei = make_manager()
    for rule in ("RISK-001", "RISK-003"):
        versions.put_in_shadow(
            tenant="default", pk=make_draft(mei, rule, **_one(rule)).pk, revision=1, by=mei
        )  # fmt: skip
    with django_assert_num_queries(1):
        found = ruling(tenant="default")
    assert len(found.active) == 7
    assert [(one.rule_id, [rule.rule_id for rule in one.rules]) for one in found.shadows] == [
        ("RISK-001", ["RISK-001"]), ("RISK-003", ["RISK-003", "RISK-004"]),
    ]  # fmt: skip


def _one(rule: str) -> dict[str, Any]:
    return {"missing": 71} if rule == "RISK-001" else {"cash_cny": 40_000}


def test_live_hits_follow_the_activated_version_and_what_it_does_not_touch_stays(tmp_path: Path) -> None:
    """c1: C3 buys R5, 70. c2 has no assessment, 70. A version that raises only the former makes a revision of it."""
    a_small_core(tmp_path)
    load(
        tmp_path / "more",
        customers=[{**CUSTOMER, "customer_id": "c2"}],
        trades=[{**TRADE, "trade_id": "t2", "customer_id": "c2"}],
    )
    scan()
    untouched = RiskAlert.objects.get(customer_id="c2")
    hashed, version = evidence_hash(untouched), untouched.version
    row = make_draft(make_manager("mei"), mismatch_base=60)
    activate(row, make_manager("bo"))
    assert dict(CoreChange.objects.values_list("customer_id", "priority")) == {"c1": 1, "c2": 1}
    scan()
    hits = RiskAlertHit.objects.order_by("customer_id", "revision")
    assert [(h.customer_id, h.score, h.rule_version, h.state) for h in hits] == [
        ("c1", 70, 1, "superseded"), ("c1", 80, 2, "live"), ("c2", 70, 1, "live"),
    ]  # fmt: skip
    untouched.refresh_from_db()
    assert (evidence_hash(untouched), untouched.version) == (hashed, version)
    assert scan(everything=True).hits == 2
    assert RiskAlertHit.objects.count() == 3


def test_activating_008_has_every_advisor_judged_again() -> None:
    from risk.conduct.models import ConductChange
    from tests.risk.conduct.make import make_probing

    make_probing()
    row = make_draft(make_manager("mei"), "RISK-008", probing_refusals=4)
    ConductChange.objects.all().delete()
    activate(row, make_manager("bo"))
    assert ConductChange.objects.count() == 1
    assert not CoreChange.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_activations_at_once_one_wins_and_the_other_is_told() -> None:
    mei, bo, chen = make_manager("mei"), make_manager("bo"), make_manager("chen")
    one, two = make_draft(mei, mismatch_base=55), make_draft(mei, mismatch_base=56)
    jobs = [(one, bo), (two, chen)]
    answers = Threads(2, lambda: activate(*jobs.pop())).end()
    codes = sorted(answer.code if isinstance(answer, DomainError) else "done" for answer in answers)
    assert codes == ["VERSION_CONFLICT", "done"], answers
    assert RiskRule.objects.filter(status=RuleStatus.ACTIVE).count() == 1
    assert len(told("activated")) == 1
    assert len(told("refused")) == 1


@pytest.mark.django_db(transaction=True)
def test_activated_while_edited_what_was_read_is_in_force_or_nothing() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    for number in range(5):
        rule = f"RISK-00{number + 1}"
        row = make_draft(mei, rule, **{"missing": 71} if rule == "RISK-001" else _any_change(rule))
        edit = {"tenant": "default", "pk": row.pk, "revision": 1, "params": {}, "reason": WHY + "!", "by": mei}
        jobs: list[Callable[[], Any]] = [
            lambda row=row: activate(row, bo),  # type: ignore[misc]
            lambda edit=edit: versions.edit_draft(**edit),  # type: ignore[misc]
        ]
        answers = Threads(2, lambda jobs=jobs: jobs.pop()()).end()  # type: ignore[misc]
        codes = {answer.code if isinstance(answer, DomainError) else "done" for answer in answers}
        row.refresh_from_db()
        assert (row.status, row.revision, codes) in [
            (RuleStatus.ACTIVE, 1, {"done", "RULE_STATUS"}), (RuleStatus.DRAFT, 2, {"done", "VERSION_CONFLICT"}),
        ], answers  # fmt: skip


def _any_change(rule: str) -> dict[str, Any]:
    return {
        "RISK-002": {"base": 51}, "RISK-003": {"other_points": 36}, "RISK-004": {"at_least": 4},
        "RISK-005": {"min_buys": 7},
    }[rule]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_scan_under_way_judges_by_the_version_that_was_activated_meanwhile(tmp_path: Path) -> None:
    """The scanner has claimed its first customer and read the rules; the activation commits; the rest follow it, and
    the first is judged again."""
    from unittest import mock

    from risk.rules import services

    a_small_core(tmp_path)
    row, bo = make_draft(make_manager("mei"), mismatch_base=60), make_manager("bo")
    real, once = services.customers_facts, []

    def meanwhile(**kwargs: Any) -> Any:
        if not once:
            once.append(1)
            answer = Threads(1, lambda: activate(row, bo)).end()[0]
            assert isinstance(answer, RiskRule), answer
        return real(**kwargs)

    with mock.patch.object(services, "customers_facts", meanwhile):
        scan()
    scan()
    assert [(h.score, h.rule_version) for h in RiskAlertHit.objects.filter(state="live")] == [(80, 2)]


# --- what a version meets on its way ----------------------------------------------------------------------------------


def test_a_trade_cancelled_or_corrected_while_its_rule_is_off_is_marked(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    others = [{**TRADE, "trade_id": f"t-{name}", "customer_id": name} for name in ("c2", "c3")]
    load(tmp_path / "more", customers=[{**CUSTOMER, "customer_id": name} for name in ("c2", "c3")], trades=others)
    scan()
    mei, bo = make_manager("mei"), make_manager("bo")
    off = versions.draft_version(tenant="default", rule_id="RISK-001", params={}, reason=WHY, by=mei, is_on=False)
    activate(off, bo)
    scan()

    def states() -> list[tuple[str, str]]:
        rows = RiskAlertHit.objects.filter(rule_id="RISK-001").order_by("customer_id", "id")
        return list(rows.values_list("customer_id", "state"))

    assert states() == [("c1", "live"), ("c2", "live"), ("c3", "live")], "what was found stays found"
    load(tmp_path / "c2", trades=[{**others[0], "version": "2", "status": "cancelled"}])
    load(tmp_path / "c3", trades=[{**others[1], "version": "2", "fee": "1"}])
    scan()
    assert states() == [("c1", "live"), ("c2", "cancelled"), ("c3", "superseded")]
    activate(make_draft(mei, mismatch_base=51), bo, seen=2)
    scan()
    assert [state for _name, state in states()].count("live") == 2, "c3's correction is found again, c2's is no trade"


BROKEN = ["[]", "[1]", "null", '"x"', "3", "", "{", "[" * 100_000, '{"nope":1}', '{"mismatch_base":{"a":1}}',
          '{"mismatch_base":1e400}', "1" * 5000]  # fmt: skip


def damage(row: RiskRule, text: str, column: str = "params") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE risk_rule SET {column} = %s WHERE id = %s", [text, row.pk])


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_row_is_refused_and_the_other_rules_go_on(tmp_path: Path, text: str, caplog: Any) -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    row = make_draft(mei, mismatch_base=55)
    shadow = make_draft(mei, "RISK-002", product_limit="0.35")
    versions.put_in_shadow(tenant="default", pk=shadow.pk, revision=1, by=mei)
    activate(row, bo)
    a_small_core(tmp_path)
    scan()
    assert RiskAlertHit.objects.get().rule_version == 2
    for one in (row, shadow):
        damage(one, text)
    if text.startswith("{") and len(text) > 1:
        damage(shadow, '{"nope": 1}')
    report = scan(everything=True)
    assert (report.failed, CoreChange.objects.count()) == ([], 0)
    found = ruling(tenant="default")
    assert (len(found.active), in_force(), found.shadows) == (6, None, [])
    assert RiskAlertHit.objects.get().state == "live", "nobody judged it"
    assert [(one.rule_id, one.version, one.status) for one in damaged_versions()] == [
        ("RISK-001", 2, "active"), ("RISK-002", 2, "shadow"),
    ]  # fmt: skip
    standing = versions.in_force(tenant="default", rule_id="RISK-001")
    assert (standing.version, standing.damaged) == (2, True)
    mended = make_draft(mei, mismatch_base=55)
    activate(mended, bo, seen=2)
    assert in_force()[0] == 3  # type: ignore[index]
    assert [one.rule_id for one in damaged_versions()] == ["RISK-002"]


def test_004_is_not_judged_by_limits_that_cannot_be_read() -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    row = make_draft(mei, "RISK-003", cash_cny=40_000)
    activate(row, bo)
    damage(row, "[]")
    assert {rule.rule_id for rule in ruling(tenant="default").active} & {"RISK-003", "RISK-004"} == set()


def test_whose_figures_cannot_be_told_nobody_activates() -> None:
    row = make_draft(make_manager("mei"), mismatch_base=55)
    damage(row, "{", "editors")
    bo = make_manager("bo")
    refused("RULE_OWN_VERSION", activate, row, bo)
    edit = {"tenant": "default", "pk": row.pk, "revision": 1, "params": {"missing": 71}, "reason": WHY}
    refused("RULE_STATUS", versions.edit_draft, **edit, by=bo)
    versions.drop(tenant="default", pk=row.pk, revision=1, by=bo)


@pytest.mark.parametrize("why", ["\u200b" * 12, "\x00" * 12, "\u3164" * 12, "a" + "\u0301" * 12, " . \u2060" * 3])
def test_a_reason_that_cannot_be_seen_is_none(why: str) -> None:
    error = refused("INVALID_REQUEST", make_draft, make_manager(), why=why, mismatch_base=55)
    assert list(error.extra["fields"]) == ["reason"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("dies", [False, True])
def test_who_is_imported_while_a_version_is_activated_is_judged_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The activation's transaction does not see c2, whom a scanner has judged by version 1 before its commit."""
    mei, bo = make_manager("mei"), make_manager("bo")
    a_small_core(tmp_path)
    more = {
        "assessments": [{**ASSESSMENT, "customer_id": "c2", "c_level": "C3"}],
        "customers": [{**CUSTOMER, "customer_id": "c2"}],
    }
    load(tmp_path / "more", **more, trades=[{**TRADE, "trade_id": "t2", "customer_id": "c2"}])
    scan()
    row = make_draft(mei, mismatch_base=55)
    real, seen = marking.known_customer_ids, []

    def blind_at_first(*, tenant: str) -> list[str]:
        seen.append(tenant)
        return ["c1"] if len(seen) == 1 else real(tenant=tenant)

    monkeypatch.setattr(marking, "known_customer_ids", blind_at_first)
    newcomers = marking._mark_newcomers
    if dies:
        monkeypatch.setattr(marking, "_mark_newcomers", lambda *_args: None)
    activate(row, bo)
    if dies:
        monkeypatch.setattr(marking, "_mark_newcomers", newcomers)
        assert marking.finish_marking() == 0, "it may be about to be done"
        RiskRule.objects.update(activated_at=now() - timedelta(minutes=2))
        assert (marking.finish_marking(), marking.finish_marking()) == (1, 0)
    scan()
    rows = RiskAlertHit.objects.filter(state="live").order_by("customer_id")
    assert list(rows.values_list("customer_id", "rule_version")) == [("c1", 2), ("c2", 2)]
    assert not RiskRule.objects.filter(marks_due=True).exists()
    assert not CoreChange.objects.exists()
