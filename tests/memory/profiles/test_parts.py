"""The advisor's and the customer's part of l3 have versions of their own: what risk writes for itself moves neither."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from config.base import redis as base_redis
from config.base.clock import now, rfc3339
from config.base.keys import prefixed
from memory.profiles import services
from memory.profiles.models import CustomerProfileL3, ProfileVersion
from tests.memory.profiles.helpers import ALICE, make_agent, make_alert, make_assignment, make_caller

pytestmark = pytest.mark.django_db(transaction=True)

URL = f"/profiles/l3/{ALICE}"
RULE = {"code": "no_new_purchase", "visibility": "public"}
FLAG = {"code": "pep_checked", "visibility": "advisor"}
HIDDEN = {"code": "aml", "visibility": "risk"}


def write(**fields: Any) -> int:
    return services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload=fields).version


def answers(*more: str) -> list[tuple[int, bytes, str | None]]:
    make = [make_agent("customer"), make_agent("advisor")]
    return [
        (answer.status_code, answer.content, answer.headers.get("ETag"))
        for agent in make
        for path in (URL, f"{URL}/versions", f"{URL}/versions?limit=1", *more)
        for answer in [agent.get(path)]
    ]


def shown(agent: str, path: str = URL) -> Any:
    return make_agent(agent).get(path).json()


@pytest.fixture
def alice(transactional_db: None) -> None:
    make_assignment()
    make_alert()


def test_what_risk_writes_for_itself_shows_nowhere(alice: None) -> None:
    write(risk_score=1, restrictions=[RULE], flags=[FLAG])
    moment = f"?as_of={rfc3339(now())}"
    numbers = [f"{URL}?version={number}" for number in (1, 2, 3, 4, 9)]
    before, past = answers(), answers(f"{URL}{moment}")[3::4]
    gone = [entry[1].replace(b"9", b"N") for entry in answers(f"{URL}?version=9")[3::4]]
    same = {"risk_score": 1, "restrictions": [RULE]}
    write(**same, flags=[FLAG], aml_rating="high")
    write(**same, flags=[FLAG, HIDDEN], reasons=["x"], open_alerts=["a-1"])
    CustomerProfileL3.objects.update(internal={"aml_rating": "low"})
    assert CustomerProfileL3.objects.get().version == 4
    assert answers() == before
    assert answers(f"{URL}?as_of={rfc3339(now())}")[3::4] == past
    after = answers(*numbers)
    for agent in (0, 8):
        assert after[agent + 3][0] == 200
        for place, number in enumerate((2, 3, 4, 9), 4):
            status, content, _tag = after[agent + place]
            assert status == 404
            trace = json.loads(content).pop("trace_id")
            unseen = content.replace(trace.encode(), b"").replace(str(number).encode(), b"N")
            assert b"there is no version N" in unseen
    assert len(gone) == 2
    # Risk goes by the row's own.
    assert (shown("risk")["version"], len(shown("risk", f"{URL}/versions")["items"])) == (4, 4)
    assert make_agent("risk").put(URL, {"risk_score": 1}, **{"If-Match": '"1"'}).status_code == 409


def test_each_part_moves_with_what_it_shows(alice: None) -> None:
    write(risk_score=1, restrictions=[RULE])
    write(risk_score=2, restrictions=[RULE])  # the advisor's
    write(risk_score=2, restrictions=[RULE], aml_rating="high")  # nobody's
    assert (shown("customer")["version"], shown("advisor")["version"]) == (1, 2)
    assert shown("customer")["as_of"] < shown("advisor")["updated_at"]
    write(risk_score=2, restrictions=[{**RULE, "text": "no buys"}])  # both
    assert (shown("customer")["version"], shown("advisor")["version"]) == (4, 4)
    pages = [shown(agent, f"{URL}/versions")["items"] for agent in ("customer", "advisor")]
    assert [[entry["version"] for entry in page] for page in pages] == [[4, 1], [4, 2, 1]]
    assert shown("customer", f"{URL}?version=1")["version"] == 1
    first = shown("customer", f"{URL}/versions?limit=1")
    assert first["next"] == 4
    second = shown("customer", f"{URL}/versions?limit=1&before_version=4")
    assert ([entry["version"] for entry in second["items"]], second["next"]) == ([1], None)
    cached = json.loads(base_redis.client_for(settings.REDIS_URL).get(prefixed(f"profile:l3:{ALICE}")) or "")
    assert (cached["version"], cached["customer_version"]) == (4, 4)


@pytest.mark.parametrize("how", ["save", "stale", "part", "update", "bulk_update", "base", "create"])
def test_whatever_way_the_row_is_written(alice: None, how: str) -> None:
    write(risk_score=1)
    rows, row = CustomerProfileL3.objects, CustomerProfileL3.objects.get()
    new = {**row.payload, "risk_score": 2}
    if how == "stale":
        write(risk_score=7)
    if how in ("save", "stale"):
        row.payload = new
        row.save()
    elif how == "part":
        part = rows.only("version").get()
        part.payload = new
        part.save(update_fields=["payload"])
    elif how == "update":
        rows.update(payload=new)
    elif how == "base":
        CustomerProfileL3._base_manager.update(payload=new)
    elif how == "bulk_update":
        row.payload = new
        rows.bulk_update([row], ["payload"])
    else:
        row.delete()
        rows.create(customer_id=ALICE, payload=new)
    standing = rows.get()
    marks = {name: mark["version"] for name, mark in standing.shown.items()}
    assert marks == {"advisor": standing.version, "customer": standing.version if how == "create" else 1}
    assert ProfileVersion.objects.order_by("-pk").first().columns["shown"] == standing.shown  # type: ignore[union-attr]
    standing.internal = {"aml_rating": "high"}
    standing.save()
    assert rows.get().shown == standing.shown
    assert shown("advisor")["version"] == marks["advisor"]
    for name in ("shown", "version"):
        with pytest.raises(ValueError, match="number themselves"):
            rows.update(**{name: {}})


def test_a_row_from_before_has_its_own_version(alice: None) -> None:
    from django.db import models

    write(risk_score=1)
    write(risk_score=1, aml_rating="high")
    models.QuerySet(CustomerProfileL3).update(shown={})
    assert shown("customer")["version"] == 2
    write(risk_score=1, aml_rating="low")
    assert (shown("customer")["version"], shown("advisor")["version"]) == (3, 3)
    write(risk_score=1)
    assert (shown("customer")["version"], shown("advisor")["version"]) == (3, 3)
