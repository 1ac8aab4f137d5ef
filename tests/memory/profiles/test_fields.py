"""What each writer may write, and what each reader is shown."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from config.base import redis as base_redis
from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.core.importer import import_tables
from memory.profiles import core_sync, derived, selectors, services
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import CustomerProfileL1
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
    make_alert,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

L1 = {
    "occupation": "教师",
    "income_band": "300-500k",
    "net_assets_band": "1-3m",
    "experience_years": 6,
    "complex_experience": False,
    "goals": [{"kind": "retirement", "amount": "2000000.00", "date": "2040-01-01", "priority": 1}],
    "horizon_months": 120,
    "liquidity_needs": [{"amount": "50000.00", "by": "2027-06-30"}],
    "max_drawdown_pct": 12.5,
    "preferences": {"like": ["bonds"], "avoid": ["tobacco"]},
    "do_not_contact": {"channels": ["phone"], "hours": "22:00-08:00", "until": "2027-01-01"},
    "language": "zh-CN",
    "consents": [{"purpose": "advice", "granted_at": "2026-01-01T00:00:00.000000Z"}],
}
L2 = {
    "stage": "client",
    "notes": [{"text": "wants monthly income", "at": "2026-10-01T08:00:00.000000Z", "trace_id": "a" * 32}],
    "needs": ["income"],
    "household": [{"relation": "spouse", "note": "also a client"}],
    "next_steps": [{"action": "send factsheet", "due": "2026-12-15", "status": "open"}],
    "last_contact_at": "2026-11-01T08:00:00.000000Z",
    "channel": "branch",
    "explanations_given": [{"product_id": "F001", "text": "may lose value", "at": "2026-11-01T08:00:00.000000Z"}],
}
L3 = {
    "risk_score": 72,
    "risk_level": "high",
    "flags": [
        {"code": "pep_checked", "visibility": "public", "since": "2026-01-01"},
        {"code": "watch", "visibility": "advisor", "since": "2026-01-01"},
        {"code": "structuring", "visibility": "risk", "since": "2026-01-01"},
    ],
    "restrictions": [
        {
            "code": "max_risk_level",
            "value": "R2",
            "text": "请先完成回访",
            "visibility": "public",
            "since": "2026-01-01",
        },
        {"code": "dual_recording_required", "visibility": "public"},
        {"code": "no_complex", "text": "advisors only", "visibility": "advisor"},
        {"code": "no_new_purchase", "text": "hidden", "visibility": "risk"},
        {"code": "callback_required", "visibility": "public", "until": "2026-01-31"},
    ],
    "valid_until": "2027-11-30",
    "reviewed_by": "officer-9",
    "aml_rating": "B2",
    "reasons": ["three cash deposits below the limit"],
    "open_alerts": ["alert-1"],
}


def write_l1(payload: dict[str, Any]) -> services.Written:
    return services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload=payload)


def write_l3(payload: dict[str, Any]) -> services.Written:
    return services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload=payload)


def test_every_field_of_each_layer_comes_back_as_it_was_written() -> None:
    make_alert()
    make_assignment()
    advisor = make_caller("advisor")
    write_l1(L1)
    services.write_l2(caller=advisor, customer_id=ALICE, advisor_id=WEI, payload=L2)
    write_l3(L3)
    for _ in range(2):  # from MySQL, then from the cache
        l1 = selectors.read_l1(caller=advisor, customer_id=ALICE)
        l2 = selectors.read_l2(caller=make_caller("risk"), customer_id=ALICE, advisor_id=WEI)
        l3 = selectors.read_l3(caller=make_caller("risk"), customer_id=ALICE)
        assert {name: l1[name] for name in L1} == L1
        assert {name: l2[name] for name in L2} == L2
        assert l2["asset_snapshot"] is None
        assert [entry["code"] for entry in l3["flags"]] == ["pep_checked", "watch", "structuring"]
        assert (l3["aml_rating"], l3["reasons"], l3["open_alerts"]) == ("B2", L3["reasons"], ["alert-1"])


def test_a_put_replaces_the_writers_own_fields_and_leaves_the_others() -> None:
    make_core_customer()
    make_assessment()
    write_l1({"occupation": "teacher", "language": "en"})
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    write_l1({"language": "zh"})
    l1 = selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)
    assert (l1["occupation"], l1["language"], l1["c_level"], l1["name"]) == (None, "zh", "C3", "王小明")
    assert l1["version"] == 3


@pytest.mark.parametrize("field", ["c_level", "is_lowest", "assessed_at", "valid_until", "name", "birth_date",
                                   "investor_type", "assessment_status", "is_elderly"])  # fmt: skip
def test_a_chat_never_raises_a_risk_level(field: str) -> None:
    with pytest.raises(DomainError) as refusal:
        write_l1({"occupation": "teacher", field: "C5"})
    assert (refusal.value.code, refusal.value.status) == ("INVALID_REQUEST", 422)
    assert refusal.value.detail.startswith(f"{field}: ")
    assert not CustomerProfileL1.objects.exists()
    row = AuditLog.objects.get()
    assert (row.event_type, row.decision, row.input_summary["fields"]) == ("profile_write", "refused", [field])


# Digits could be seconds, milliseconds or a day without its marks; the rest is ISO 8601 and not RFC 3339.
NEITHER = ["20271231", "1700000000", "1700000000.5", "-1", "0", "2026-W01-1", "2026-001", "2026-01-01T00:00:00", 1.5,
           "2026-01-01T10:00Z", "2026-01-01 10:00:00Z", "2026-01-01T10:00:00+0800", "２０２６-01-01",
           " 2026-01-01"]  # fmt: skip
NO_DAYS = [*NEITHER, "2026-01-01T00:00:00Z", "2026-02-30"]
NO_INSTANTS = [*NEITHER, "2026-01-01", "2026-01-01T25:00:00Z"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"occupatoin": "x"}, "occupatoin"),
        ({"occupation": 5}, "occupation"),
        ({"occupation": "x" * 201}, "occupation"),
        ({"experience_years": "6"}, "experience_years"),
        ({"experience_years": True}, "experience_years"),
        ({"max_drawdown_pct": 101}, "max_drawdown_pct"),
        ({"goals": [{"kind": "house", "amount": "-1"}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": 1999999.99}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": 5.0}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": True}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": "1e5"}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": "1_000"}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": "１０"}]}, "goals.0.amount"),
        ({"goals": [{"kind": "house", "amount": "10.001"}]}, "goals.0.amount"),
        ({"liquidity_needs": [{"amount": 0.1}]}, "liquidity_needs.0.amount"),
        ({"liquidity_needs": [{"amount": float("nan")}]}, "liquidity_needs.0.amount"),
        ({"liquidity_needs": [{"amount": "NaN"}]}, "liquidity_needs.0.amount"),
        ({"goals": [{"kind": "house", "colour": "red"}]}, "goals.0.colour"),
        ({"goals": [{"kind": "house"}] * 31}, "goals"),
        ({"consents": [{"purpose": "x", "granted_at": "2026-01-01T00:00:00"}]}, "consents.0.granted_at"),
        ({"consents": [{"purpose": "x", "granted_at": 1764500000}]}, "consents.0.granted_at"),
        ({"consents": [{"purpose": "x", "granted_at": "0001-01-01T00:00:00+14:00"}]}, "consents.0.granted_at"),
        ({"goals": [{"kind": "house", "date": 20260101}]}, "goals.0.date"),
        ({"goals": [{"kind": "house", "date": "9999-12-31"}]}, "goals.0.date"),
        ({"language": "a b"}, "language"),
        ({"schema_version": 2}, "schema_version"),
        ({"schema_version": True}, "schema_version"),
        ({"schema_version": 1.0}, "schema_version"),
        ({"occupation": b"cook"}, "occupation"),
        ({"goals": ({"kind": "house"},)}, "goals"),
        *(({"goals": [{"kind": "house", "date": wrong}]}, "goals.0.date") for wrong in NO_DAYS),
        *(({"liquidity_needs": [{"amount": "1", "by": wrong}]}, "liquidity_needs.0.by") for wrong in NO_DAYS),
        *(({"consents": [{"purpose": "x", "granted_at": wrong}]}, "consents.0.granted_at") for wrong in NO_INSTANTS),
        *(({"do_not_contact": {"until": wrong}}, "do_not_contact.until") for wrong in NEITHER),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(DomainError) as refusal:
        write_l1(payload)
    assert refusal.value.code == "INVALID_REQUEST"
    assert refusal.value.extra["errors"][0]["field"] == field
    assert not CustomerProfileL1.objects.exists()
    assert not AuditLog.objects.exists()


@pytest.mark.parametrize("wrong", NEITHER)
def test_a_restriction_ends_on_the_day_that_was_written(wrong: Any) -> None:
    make_alert()
    for name in ("since", "until"):
        with pytest.raises(DomainError) as refusal:
            write_l3({"restrictions": [{"code": "no_new_purchase", "visibility": "public", name: wrong}]})
        assert refusal.value.extra["errors"][0]["field"] == f"restrictions.0.{name}"
    with pytest.raises(DomainError) as refusal:
        write_l3({"valid_until": wrong})
    assert refusal.value.extra["errors"][0]["field"] == "valid_until"


def test_an_amount_is_a_string_and_a_whole_number_becomes_one() -> None:
    write_l1({"goals": [{"kind": "house", "amount": 2000000}], "liquidity_needs": [{"amount": "0.10"}]})
    l1 = selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)
    assert (l1["goals"][0]["amount"], l1["liquidity_needs"][0]["amount"]) == ("2000000", "0.10")


def test_the_fields_together_are_bounded_and_must_be_text() -> None:
    with pytest.raises(DomainError) as refusal:
        write_l1({"preferences": {"like": ["字" * 200] * 50, "avoid": ["字" * 200] * 50},
                  "consents": [{"purpose": "字" * 200, "granted_at": "2026-01-01T00:00:00Z"}] * 50})  # fmt: skip
    assert refusal.value.code == "BODY_TOO_LARGE"
    with pytest.raises(DomainError) as refusal:
        write_l1({"occupation": "\ud800"})
    assert refusal.value.code == "INVALID_REQUEST"


def test_a_note_without_an_instant_is_given_the_writes() -> None:
    make_assignment()
    advisor = make_caller("advisor")
    services.write_l2(caller=advisor, customer_id=ALICE, advisor_id=WEI, payload={"notes": [{"text": "hello"}]})
    [note] = selectors.read_l2(caller=advisor, customer_id=ALICE, advisor_id=WEI)["notes"]
    assert note["text"] == "hello"
    assert note["at"].endswith("Z")
    assert len(note["trace_id"]) == 32


@pytest.mark.parametrize("field", ["asset_snapshot", "snapshot_at", "core_as_of"])
def test_an_advisor_does_not_write_the_snapshot_by_hand(field: str) -> None:
    make_assignment()
    with pytest.raises(DomainError, match=f"{field}: comes from the core"):
        services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload={field: {}})


# --- l3: who sees what ------------------------------------------------------------------------------------------


def test_the_customer_gets_exactly_the_customers_part() -> None:
    make_alert()
    make_core_customer()
    assessed = now() - timedelta(days=10)
    make_assessment(at=assessed, c_level=4)
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    written = write_l3(L3)
    for _ in range(2):
        part = selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)
        assert part == {
            "customer_id": ALICE,
            "version": 1,
            "assessment_status": "valid",
            "assessment_valid_until": derived.valid_until(assessed).isoformat(),
            "max_product_risk_level": "R2",
            "restrictions": [
                {"code": "max_risk_level", "text": "请先完成回访", "until": None},
                {"code": "dual_recording_required", "text": None, "until": None},
            ],
            "required_steps": ["dual_recording"],
            "as_of": written.updated_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }


def test_a_customer_without_an_assessment_is_told_to_take_one() -> None:
    write_l3({"risk_score": 10})
    part = selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)
    assert part["assessment_status"] == "missing"
    assert (part["max_product_risk_level"], part["required_steps"]) == (None, ["reassess"])


def test_the_advisor_gets_public_and_advisor_entries_and_nothing_internal() -> None:
    make_alert()
    make_assignment()
    write_l3(L3)
    for _ in range(2):
        l3 = selectors.read_l3(caller=make_caller("advisor"), customer_id=ALICE)
        assert l3["risk_score"] == 72
        assert [entry["code"] for entry in l3["flags"]] == ["pep_checked", "watch"]
        assert "no_new_purchase" not in json.dumps(l3)
        assert not {"aml_rating", "reasons", "open_alerts"} & set(l3)


def test_no_internal_field_is_ever_in_redis(own_redis_prefix: str) -> None:
    make_alert()
    make_assignment()
    write_l3(L3)
    for agent in ("customer", "advisor", "risk"):
        selectors.read_l3(caller=make_caller(agent), customer_id=ALICE)
    client = base_redis.state()
    held = client.get(f"{own_redis_prefix}:profile:l3:{ALICE}")
    assert json.loads(held)["risk_score"] == 72
    everything = " ".join(
        str(client.get(name)) for name in client.scan_iter(f"{own_redis_prefix}:*") if client.type(name) == "string"
    )
    for secret in ("aml", "B2", "reasons", "three cash", "alert-1", "structuring", "hidden", "no_new_purchase"):
        assert secret not in everything


def test_an_entry_that_does_not_say_who_may_read_it_is_risks_alone() -> None:
    make_alert()
    write_l3({"restrictions": [{"code": "no_complex", "text": "x"}]})
    assert selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)["restrictions"] == []


@pytest.mark.parametrize(
    "entry",
    [{"code": "max_risk_level"}, {"code": "max_risk_level", "value": "R9"}, {"code": "no_complex", "value": "R2"}],
)
def test_a_level_belongs_to_max_risk_level_alone(entry: dict[str, Any]) -> None:
    with pytest.raises(DomainError):
        write_l3({"restrictions": [entry]})


# --- what follows from the day ----------------------------------------------------------------------------------


def shanghai(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+08:00")


def test_an_assessment_that_expires_while_cached_is_shown_as_expired_by_every_reader() -> None:
    make_core_customer()
    make_assessment(at=shanghai("2025-11-30T09:00"))
    make_assignment()
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    write_l3({"risk_score": 1})
    days = {
        shanghai("2026-10-30T12:00"): "valid",  # 31 days left
        shanghai("2026-10-31T12:00"): "expiring",  # 30
        shanghai("2026-11-30T23:59"): "expiring",  # the last day counts
        shanghai("2026-12-01T00:00"): "expired",
    }
    for moment, status in days.items():
        for agent in ("customer", "advisor", "risk"):
            assert (
                selectors.read_l1(caller=make_caller(agent), customer_id=ALICE, at=moment)["assessment_status"]
                == status
            )
        part = selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE, at=moment)
        assert part["assessment_status"] == status
        assert part["required_steps"] == (["reassess"] if status == "expired" else [])
        assert part["max_product_risk_level"] == (None if status == "expired" else "R3")


@pytest.mark.parametrize(
    ("born", "today", "elderly"),
    [
        (date(1961, 11, 30), date(2026, 11, 29), False),
        (date(1961, 11, 30), date(2026, 11, 30), True),
        (date(1960, 2, 29), date(2025, 2, 28), False),
        (date(1960, 2, 29), date(2025, 3, 1), True),
    ],
)
def test_65_is_reached_on_the_birthday_and_for_29_february_on_1_march(born: date, today: date, elderly: bool) -> None:
    assert derived.is_elderly({"birth_date": born.isoformat()}, today) is elderly


def test_an_assessment_of_29_february_is_valid_through_28_february() -> None:
    assert derived.valid_until(shanghai("2024-02-29T10:00")) == date(2025, 2, 28)


def test_a_professional_investor_is_not_matched_but_still_restricted() -> None:
    l1 = {"investor_type": "professional"}
    assert derived.max_product_risk_level(l1, "missing", []) == "R5"
    assert derived.max_product_risk_level(l1, "missing", [{"code": "max_risk_level", "value": "R3"}]) == "R3"
    assert derived.max_product_risk_level({"c_level": "C1", "is_lowest": True}, "valid", []) == "R1"


# --- the core sync ----------------------------------------------------------------------------------------------


def test_a_customer_of_the_core_has_an_l1_from_the_first_read_on() -> None:
    make_core_customer()
    make_assessment()
    make_assignment()
    l1 = selectors.read_l1(caller=make_caller("advisor"), customer_id=ALICE)
    assert (l1["name"], l1["c_level"], l1["is_elderly"], l1["assessment_status"]) == ("王小明", "C3", True, "valid")
    row = AuditLog.objects.get()
    assert (row.event_type, row.decision, row.actor_type, row.actor_id) == (
        "profile_write",
        "written",
        "system",
        "core-sync",
    )
    assert sync_l1_from_core(tenant="default", customer_id=ALICE) is False
    assert AuditLog.objects.count() == 1


def test_a_new_assessment_reaches_a_cached_profile_by_the_sync() -> None:
    make_core_customer()
    make_assessment(at=now() - timedelta(days=500))
    caller = make_caller("customer")
    assert selectors.read_l1(caller=caller, customer_id=ALICE)["assessment_status"] == "expired"
    make_assessment(at=now() - timedelta(hours=1), c_level=4)
    assert sync_l1_from_core(tenant="default", customer_id=ALICE) is True
    l1 = selectors.read_l1(caller=caller, customer_id=ALICE)
    assert (l1["assessment_status"], l1["c_level"], l1["version"]) == ("valid", "C4", 2)


def test_an_import_changes_what_the_next_reader_sees_although_it_was_cached() -> None:
    caller = make_caller("customer")
    customers = [{"customer_id": ALICE, "name": "王小明", "kind": "natural", "birth_date": "1970-01-01"}]
    assessed = {"customer_id": ALICE, "c_level": "C2", "is_lowest": "false", "assessed_at": "2026-01-01T08:00:00Z"}
    import_tables(tenant="default", tables={"customers.csv": customers, "assessments.csv": [assessed]})
    write_l1({"occupation": "teacher"})
    assert selectors.read_l1(caller=caller, customer_id=ALICE)["c_level"] == "C2"
    newer = {**assessed, "c_level": "C4", "assessed_at": "2026-06-01T08:00:00Z"}
    import_tables(tenant="default", tables={"assessments.csv": [newer]})
    l1 = selectors.read_l1(caller=caller, customer_id=ALICE)
    assert (l1["c_level"], l1["occupation"], l1["version"]) == ("C4", "teacher", 3)
    import_tables(tenant="default", tables={"customers.csv": [{**customers[0], "investor_type": "professional"}]})
    import_tables(tenant="default", tables={"customers.csv": [{**customers[0], "investor_type": "professional"}]})
    l1 = selectors.read_l1(caller=caller, customer_id=ALICE)
    assert (l1["investor_type"], l1["version"]) == ("professional", 4)


def test_a_core_that_is_away_hides_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    make_core_customer()
    caller = make_caller("customer")
    selectors.read_l1(caller=caller, customer_id=ALICE)
    CustomerProfileL1.objects.update(core_synced_at=None)

    def away(**_: Any) -> Any:
        raise OperationalError(2003, "cannot connect to the core")

    monkeypatch.setattr(core_sync, "customer", away)
    assert selectors.read_l1(caller=caller, customer_id=ALICE)["name"] == "王小明"


def test_a_customer_nobody_knows_has_no_profile() -> None:
    with pytest.raises(DomainError) as missing:
        selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)
    assert missing.value.code == "PROFILE_NOT_FOUND"
