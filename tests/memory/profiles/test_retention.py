"""Versions that are over go, and every as-of read within the period still answers byte by byte."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from config.base.clock import now
from config.base.errors import DomainError
from memory.erasure.holds import place_hold
from memory.profiles import selectors, services
from memory.profiles.models import Layer, ProfileVersion
from memory.profiles.queries.models import AnalyticsQueryText
from tests.memory.drafts.helpers import WORDS, make_draft
from tests.memory.profiles.helpers import ALICE, WEI, make_agent, make_alert, make_assignment, make_caller
from tests.pruning import prune_table

pytestmark = pytest.mark.django_db(transaction=True)
PERIOD = timedelta(days=7305)
L3 = f"/profiles/l3/{ALICE}"


def write_l1(occupation: str) -> None:
    services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": occupation})


def occupation_at(moment: datetime) -> str:
    try:
        return str(selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE, as_of=moment)["occupation"])
    except DomainError as error:
        return error.code


def numbers(layer: str = Layer.L1) -> list[int]:
    return list(ProfileVersion.objects.filter(layer=layer).order_by("version").values_list("version", flat=True))


def test_as_of_reads_within_the_period_stay_exact_to_its_first_instant() -> None:
    moments: list[datetime] = []
    for name in ("pilot", "nurse", "baker", "judge"):
        write_l1(name)
        moments.append(ProfileVersion.objects.latest("version").visible_at)  # type: ignore[arg-type]
    tick = timedelta(microseconds=1)
    # The period begins right where `baker` came: it is the first that stays, and `nurse` is over only a moment later.
    prune_table("profile_version", at=moments[2] + PERIOD)
    assert numbers() == [2, 3, 4]
    assert prune_table("profile_version", at=moments[2] + PERIOD + tick).removed == 1
    assert numbers() == [3, 4]
    assert [occupation_at(at) for at in (moments[2], moments[3] - tick, moments[3], now())] == [
        "baker", "baker", "judge", "judge",
    ]  # fmt: skip
    assert occupation_at(moments[1]) == "HISTORY_STARTS_LATER"
    assert prune_table("profile_version", at=now() + 2 * PERIOD).removed == 1
    assert numbers() == [4]  # what is in force stays for ever
    write_l1("sailor")
    assert numbers() == [4, 5]


def test_what_a_part_of_l3_shows_stays_however_long_it_has_not_changed() -> None:
    make_assignment()
    make_alert()
    risk, advisor = make_caller("risk"), make_agent("advisor", WEI)
    services.write_l3(caller=risk, customer_id=ALICE, payload={"restrictions": [restriction()]})
    shown = advisor.get(L3)
    for n in range(4):
        services.write_l3(
            caller=risk,
            customer_id=ALICE,
            payload={"restrictions": [restriction()], "aml_rating": ("low", "high")[n % 2]},
        )
    assert prune_table("profile_version", at=now() + PERIOD + timedelta(hours=1)).removed == 3
    assert numbers(Layer.L3) == [1, 5]
    again = advisor.get(L3)
    assert (again.json(), again["ETag"]) == (shown.json(), shown["ETag"])
    number = json.loads(shown.content)["version"]
    assert advisor.get(f"{L3}?version={number}").json() == shown.json()


def restriction() -> dict[str, Any]:
    return {"code": "no_complex", "visibility": "advisor"}


def test_a_hold_keeps_versions_drafts_and_the_texts_that_name_the_customer() -> None:
    write_l1("pilot")
    write_l1("nurse")
    draft = make_draft(WORDS)
    type(draft).objects.update(review_status="expired")
    for n, text in enumerate((f"SELECT * FROM core_trade WHERE customer_id = '{ALICE.upper()}'", "SELECT 1")):
        AnalyticsQueryText.objects.create(query_id=f"q{n}", tenant="default", text=text)
    place_hold(customer_id=ALICE, by="manage.py legal_hold", reason="a complaint")
    tables = ("profile_version", "advisor_draft.expired", "analytics_query_text")
    results = [prune_table(table) for table in tables]
    assert [(one.removed, one.held) for one in results] == [(0, 1), (0, 1), (1, 1)]
    place = type(draft).objects.get()
    assert place.pk == draft.pk


def test_drafts_that_were_sent_stay_longer_than_those_that_were_not() -> None:
    gone, kept, waiting = make_draft(WORDS), make_draft(WORDS), make_draft(WORDS)
    rows = type(gone).objects
    rows.filter(pk=gone.pk).update(review_status="expired")
    rows.filter(pk=kept.pk).update(
        review_status="sent", sent_at=now(), approved_hash=kept.content_hash, reviewed_by="rui"
    )
    at = now() + timedelta(days=1827)
    assert prune_table("advisor_draft.expired", at=at).also == {"advisor_draft_revision": 1}
    assert prune_table("advisor_draft", at=at).removed == 0
    assert set(rows.values_list("pk", flat=True)) == {kept.pk, waiting.pk}
    assert prune_table("advisor_draft").removed == 1
    assert prune_table("advisor_draft.expired").removed == 0
    assert rows.get().pk == waiting.pk
