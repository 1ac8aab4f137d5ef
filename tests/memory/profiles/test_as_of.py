"""As-of reads: exactly what each reader was given at a past instant, and the history as far as each may see it."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connections, models, transaction

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from memory.profiles import cache, history, recording, selectors, services
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Layer, ProfileVersion
from memory.profiles.sweeping import sweep
from tests.counting import counted_round_trips
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
    Agent,
    make_agent,
    make_alert,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

L1, L2, L3 = f"/profiles/l1/{ALICE}", f"/profiles/l2/{ALICE}/{WEI}", f"/profiles/l3/{ALICE}"
READERS = [
    ("customer", L1), ("customer", L3), ("advisor", L1), ("advisor", L2), ("advisor", L3),
    ("risk", L1), ("risk", L2), ("risk", L3), ("analyst", L1), ("analyst", L3),
]  # fmt: skip


def write_l1(occupation: str) -> services.Written:
    return services.write_l1(
        caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": occupation, "language": "en"}
    )


def write_l3(**fields: Any) -> services.Written:
    return services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload=fields)


def past(agent: Agent, path: str, as_of: datetime) -> Any:
    return agent.get(f"{path}?as_of={quote(rfc3339(as_of))}")


def occupation_at(moment: datetime) -> str | None:
    try:
        return str(selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE, as_of=moment)["occupation"])
    except DomainError as error:
        if error.code != "PROFILE_NOT_FOUND":
            raise
        return None


def set_visible(version: int, moment: datetime | None, layer: str = "l1") -> None:
    """Past the model, which lets nobody: what time would do."""
    rows: Any = models.QuerySet(ProfileVersion).filter(layer=layer, version=version)
    assert rows.update(visible_at=moment) == 1


def test_three_versions_are_read_back_byte_by_byte_as_each_reader_was_given_them(settings: Any) -> None:
    settings.ANALYST_READS_PROFILES = True
    make_alert()
    make_assignment()
    make_core_customer()
    make_assessment()
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    agents = {name: make_agent(name) for name in ("customer", "advisor", "risk", "analyst")}
    restriction = {"code": "max_risk_level", "value": "R2", "text": "先回访", "visibility": "public"}
    rounds = [
        ("teacher", {"stage": "lead"}, {"risk_score": 10, "aml_rating": "A"}),
        (
            "法官",
            {"stage": "client", "notes": [{"text": "monthly"}]},
            {"risk_score": 50, "restrictions": [restriction]},
        ),
        ("pilot", {"needs": ["income"]}, {"flags": [{"code": "x", "visibility": "advisor"}], "reviewed_by": "o-9"}),
    ]
    served: list[tuple[datetime, dict[tuple[str, str], tuple[bytes, str]]]] = []
    for occupation, l2, l3 in rounds:
        write_l1(occupation)
        services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload=l2)
        write_l3(**l3)
        given = {}
        for _ in range(2):  # from MySQL, then from the cache
            for name, path in READERS:
                answer = agents[name].get(path)
                assert answer.status_code == 200, answer.content
                assert given.setdefault((name, path), (answer.content, answer["ETag"])) == (
                    answer.content, answer["ETag"],
                )  # fmt: skip
        served.append((now(), given))
    assert len({given["risk", L1] for _moment, given in served}) == 3
    CustomerProfileL1.objects.all().delete()
    CustomerProfileL3.objects.update(payload={})
    for moment, given in served:
        for name, path in READERS:
            answer = past(agents[name], path, moment)
            assert (answer.content, answer["ETag"]) == given[name, path], (name, path)
            version = answer["ETag"].strip('"')
            again = agents[name].get(f"{path}?version={version}&as_of={quote(rfc3339(moment))}")
            assert again.content == answer.content
            assert agents[name].get(f"{path}?version={version}").status_code == 200
    assert past(agents["customer"], L1, now()).json()["code"] == "PROFILE_NOT_FOUND"


def test_what_follows_from_the_day_follows_from_that_day() -> None:
    assessed = now() - timedelta(days=400)
    make_core_customer(born=(now() - timedelta(days=65 * 366)).date())
    make_assessment(at=assessed)
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    write_l3(risk_score=1)
    until = (now() - timedelta(days=30)).date().isoformat()
    CustomerProfileL3.objects.update(
        payload={
            "schema_version": 1,
            "restrictions": [{"code": "no_complex", "visibility": "public", "until": until}],
        }
    )
    set_visible(1, assessed)
    set_visible(2, assessed, "l3")
    customer = make_agent("customer")
    for age, status, codes in ((400, "valid", 1), (50, "expiring", 1), (20, "expired", 0), (0, "expired", 0)):
        moment = now() - timedelta(days=age)
        assert past(customer, L1, moment).json()["assessment_status"] == status
        part = past(customer, L3, moment).json()
        assert (part["assessment_status"], len(part["restrictions"])) == (status, codes)
    assert customer.get(L1).json()["assessment_status"] == "expired"


def test_as_of_is_commit_order_and_not_when_the_writer_looked_at_the_clock() -> None:
    """A writer that takes its time: until it commits, everybody is given the version before, and history says so."""
    write_l1("teacher")
    CustomerProfileL1.objects.update(core_synced_at=now())  # or the reader would write, and wait for the writer
    written, commit = threading.Event(), threading.Event()

    def slowly() -> None:
        try:
            with transaction.atomic():
                write_l1("judge")
                written.set()
                assert commit.wait(10)
        finally:
            connections.close_all()

    writer = threading.Thread(target=slowly)
    writer.start()
    assert written.wait(10)
    between = now()
    shown = selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)
    assert occupation_at(between) == shown["occupation"] == "teacher"
    commit.set()
    writer.join(10)
    second = ProfileVersion.objects.get(version=3)
    assert second.visible_at is not None
    assert second.at < between < second.visible_at
    assert occupation_at(between) == "teacher"
    assert occupation_at(second.visible_at) == "judge"
    assert occupation_at(second.visible_at - timedelta(microseconds=1)) == "teacher"


def test_of_versions_that_became_visible_at_one_instant_or_out_of_order_the_newest_counts() -> None:
    for occupation in ("teacher", "judge", "pilot"):
        write_l1(occupation)
    start = now() - timedelta(hours=1)
    for version, seconds in ((1, 0), (2, 20), (3, 20)):
        set_visible(version, start + timedelta(seconds=seconds))
    assert occupation_at(start + timedelta(seconds=19)) == "teacher"
    assert occupation_at(start + timedelta(seconds=20)) == "pilot"
    set_visible(2, start + timedelta(seconds=30))  # its writer was slow to say so
    assert occupation_at(start + timedelta(seconds=40)) == "pilot"


def test_a_question_has_the_same_answer_before_and_after_a_dead_writers_version_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_l1("teacher")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        patch.setattr(recording, "settle_quietly", lambda rows, moment: False)  # killed here
        write_l1("judge")
    between = now()
    assert occupation_at(between) == "teacher"
    sweep()
    assert occupation_at(between) == "teacher"
    assert occupation_at(now()) == "judge"


def test_before_between_and_after() -> None:
    before = now()
    write_l1("teacher")
    first = now()
    CustomerProfileL1.objects.all().delete()
    gone = now()
    write_l1("judge")
    assert [occupation_at(moment) for moment in (before, first, gone, now())] == [None, "teacher", None, "judge"]
    customer = make_agent("customer")
    assert customer.get(f"{L1}?version=2").json()["code"] == "PROFILE_NOT_FOUND"  # its deletion
    assert customer.get(f"{L1}?version=3").json()["occupation"] == "judge"
    for number in ("4", "0", "-1", "99999999999999999999"):
        assert customer.get(f"{L1}?version={number}").json()["code"] == "VERSION_NOT_FOUND", number


def test_before_the_first_version_that_was_kept_the_answer_says_so_and_names_the_earliest() -> None:
    before = now()
    for occupation in ("teacher", "judge", "pilot"):
        write_l1(occupation)
    write_l3(risk_score=3)
    ProfileVersion.objects.filter(layer="l1", version__lt=3).erase()
    third = ProfileVersion.objects.get(version=3)
    customer = make_agent("customer")
    for answer in (past(customer, L1, before), customer.get(f"{L1}?version=2")):
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (404, "HISTORY_STARTS_LATER")
        assert problem["earliest"] == rfc3339(third.visible_at or third.at)
        assert problem["earliest_version"] == 3
    assert past(customer, L1, now()).json()["occupation"] == "pilot"
    # The customer's part of l3 follows from an l1 that is not known either.
    set_visible(1, before, "l3")
    assert past(customer, L3, before).json()["code"] == "HISTORY_STARTS_LATER"


@pytest.mark.parametrize(
    "wrong",
    ["2026-11-30", "1764500000", "yesterday", "2026-11-30T08:00:00", "2026-13-30T08:00:00Z", "",
     "2026-11-30T08:00:00 08:00", "２026-11-30T08:00:00Z", "0001-01-01T00:00:00+23:59"],
)  # fmt: skip
def test_an_instant_that_is_none_is_a_422(wrong: str) -> None:
    write_l1("teacher")
    answer = make_agent("customer").get(f"{L1}?as_of={quote(wrong)}")
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


def test_the_future_is_not_told_and_a_version_not_before_it_came() -> None:
    before = now()
    write_l1("teacher")
    customer = make_agent("customer")
    assert "future" in past(customer, L1, now() + timedelta(minutes=1)).json()["detail"]
    answer = customer.get(f"{L1}?version=1&as_of={quote(rfc3339(before))}")
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    offset = now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "+00:00"
    assert customer.get(f"{L1}?as_of={quote(offset)}").status_code == 200


def test_a_version_that_was_tampered_with_is_not_shown() -> None:
    write_l1("teacher")
    rows: Any = models.QuerySet(ProfileVersion).all()
    rows.update(columns={"payload": {"schema_version": 1, "occupation": "forged"}, "core": {}})
    answer = make_agent("customer").get(f"{L1}?version=1")
    assert (answer.status_code, answer.json()["code"]) == (500, "VERSION_DAMAGED")
    assert "forged" not in answer.content.decode()


def test_what_the_past_costs(django_assert_num_queries: Any) -> None:
    for number in range(5):
        write_l1(f"job {number}")
        write_l3(risk_score=number)
        if not number:
            selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)  # the core is asked once
    customer, moment = make_caller("customer"), now()
    with counted_round_trips() as sent:
        with django_assert_num_queries(1):
            selectors.read_l1(caller=customer, customer_id=ALICE, as_of=moment)
        with django_assert_num_queries(2):
            selectors.read_l3(caller=customer, customer_id=ALICE, as_of=moment)
        with django_assert_num_queries(1):
            selectors.versions_l1(caller=customer, customer_id=ALICE, limit=3)
    assert sent == []


# --- access -------------------------------------------------------------------------------------------------------


def test_who_may_read_the_past_is_decided_as_of_now() -> None:
    CustomerProfileL1.objects.create(customer_id=ALICE)
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 1})
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI)
    assignment = make_assignment()
    moment = now()
    advisor = make_agent("advisor")
    asked = [f"{path}{more}" for path in (L1, L2, L3) for more in (f"?as_of={quote(rfc3339(moment))}", "/versions")]
    for path in asked:
        assert advisor.get(path).status_code == 200, path
    assignment.valid_to = assignment.valid_from
    assignment.save()
    for path in asked:
        assert advisor.get(path).json()["code"] == "NOT_ASSIGNED", path
        assert make_agent("analyst").get(path).json()["code"] == "AUTH_403_SCOPE", path
        assert make_agent("customer", "cust-bob").get(path).status_code == 403, path
    assert make_agent("customer").get(f"{L2}/versions").json()["code"] == "AUTH_403_SCOPE"
    other = make_agent("risk", tenant="acme")
    assert other.get(f"{L1}/versions").json()["code"] == "PROFILE_NOT_FOUND"
    assert past(other, L1, moment).json()["code"] == "PROFILE_NOT_FOUND"


def test_the_history_names_what_changed_and_who_wrote() -> None:
    make_core_customer()
    make_assessment()
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    write_l1("teacher")
    write_l1("judge")
    CustomerProfileL1.objects.all().delete()
    write_l1("pilot")
    answer = make_agent("customer").get(f"{L1}/versions").json()
    assert answer["next"] is None
    assert [(item["version"], item["author"], item["agent"], item["deleted"]) for item in answer["items"]] == [
        (5, ALICE, "customer", False),
        (4, None, None, True),
        (3, ALICE, "customer", False),
        (2, ALICE, "customer", False),
        (1, "core-sync", "core-sync", False),
    ]
    changed = [item["changed"] for item in answer["items"]]
    assert changed[1:4] == [[], ["occupation"], ["language", "occupation"]]
    assert "c_level" in changed[4]
    assert len(answer["items"][0]["trace_id"]) == 32


def test_pages_of_the_history() -> None:
    for number in range(7):
        write_l1(f"job {number}")
    customer = make_agent("customer")
    seen, query = [], "limit=3"
    while True:
        page = customer.get(f"{L1}/versions?{query}").json()
        seen.append([item["version"] for item in page["items"]])
        if page["next"] is None:
            break
        query = f"limit=3&before_version={page['next']}"
    assert seen == [[7, 6, 5], [4, 3, 2], [1]]
    numbers = ("x", "", "true", "1.0", "%2B1", "1_0", "%201", "1%0A", "1e1", "%D9%A1")
    for one in numbers:
        assert make_agent("customer").get(f"{L1}?version={one}").status_code == 422, one
    for wrong in (
        "limit=0",
        "limit=201",
        *(f"{name}={one}" for name in ("limit", "before_version") for one in numbers),
    ):
        assert customer.get(f"{L1}/versions?{wrong}").json()["code"] == "INVALID_REQUEST"
    assert customer.get(f"{L1}/versions?before_version=99999999999999999999&limit=200").status_code == 200


def test_the_history_of_l3_tells_nobody_but_risk_of_what_they_may_not_see(settings: Any) -> None:
    """A list of versions would tip off by their number and their authors alone."""
    settings.ANALYST_READS_PROFILES = True
    make_alert()
    make_assignment()
    public = {"code": "callback_required", "visibility": "public"}
    hidden = {"code": "no_new_purchase", "visibility": "risk"}
    write_l3(restrictions=[public])
    write_l3(restrictions=[public, hidden], aml_rating="C", reasons=["structuring"])  # 2: risk's alone
    write_l3(restrictions=[public, hidden], aml_rating="C", risk_score=90)  # 3: the score is not the customer's
    write_l3(restrictions=[hidden])  # 4
    answers = {name: make_agent(name).get(f"{L3}/versions") for name in ("risk", "advisor", "customer", "analyst")}
    shown = {
        name: [(item["version"], item["changed"], item["author"]) for item in answer.json()["items"]]
        for name, answer in answers.items()
    }
    assert [(version, author) for version, _changed, author in shown["risk"]] == [
        (n, "officer-1") for n in (4, 3, 2, 1)
    ]
    assert shown["risk"][2][1] == ["aml_rating", "reasons", "restrictions"]
    for name in ("advisor", "analyst"):
        assert shown[name] == [
            (3, ["restrictions", "risk_score"], None), (2, ["risk_score"], None), (1, ["restrictions"], None)
        ]  # fmt: skip
    assert [(version, author) for version, _changed, author in shown["customer"]] == [(2, None), (1, None)]
    assert shown["customer"][0][1] == ["required_steps", "restrictions"]
    for name in ("advisor", "customer", "analyst"):
        for secret in ("officer", "aml", "reasons", "flags", 'trace_id":"'):
            assert secret not in answers[name].content.decode()


def test_what_people_look_at() -> None:
    write_l1("teacher")
    write_l1("judge")
    write_l3(aml_rating="B")
    rows = history.history_of_customer(tenant="default", customer_id=ALICE)
    assert [(row.layer, row.version) for row in rows] == [("l3", 1), ("l1", 2), ("l1", 1)]
    assert history.history_of_customer(tenant="default", customer_id=ALICE, before_id=rows[0].pk, limit=1)[0] == rows[1]
    newer = ProfileVersion.objects.get(layer="l1", version=2)
    assert history.diff(history.version_before(newer), newer) == [
        history.Change("payload.occupation", "teacher", "judge")
    ]
    first = ProfileVersion.objects.get(layer="l1", version=1)
    assert history.version_before(first) is None
    assert history.Change("payload.language", None, "en") in history.diff(None, first)
    assert json.dumps([change.before for change in history.diff(first, newer)]) == '["teacher"]'
    assert history.Of("default", Layer.L1, ALICE).versions.count() == 2
