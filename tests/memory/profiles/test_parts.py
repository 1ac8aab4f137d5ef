"""The advisor's and the customer's part of l3 have versions of their own: what risk writes for itself moves neither."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.conf import settings

from config.base import redis as base_redis
from config.base.clock import now, rfc3339
from config.base.keys import prefixed
from memory.profiles import cache, recording, services
from memory.profiles.models import CustomerProfileL3, ProfileVersion
from tests.memory.profiles.helpers import (
    ALICE,
    make_agent,
    make_alert,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)

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
    assert (shown("customer")["version"], shown("advisor")["version"]) == (2, 3)
    pages = [shown(agent, f"{URL}/versions")["items"] for agent in ("customer", "advisor")]
    assert [[entry["version"] for entry in page] for page in pages] == [[2, 1], [3, 2, 1]]
    assert shown("customer", f"{URL}?version=1")["version"] == 1
    first = shown("customer", f"{URL}/versions?limit=1")
    assert first["next"] == 2
    second = shown("customer", f"{URL}/versions?limit=1&before_version=2")
    assert ([entry["version"] for entry in second["items"]], second["next"]) == ([1], None)
    cached = json.loads(base_redis.client_for(settings.REDIS_URL).get(prefixed(f"profile:l3:{ALICE}")) or "")
    assert (cached["version"], cached["customer_version"]) == (3, 2)


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
    assert marks == {"advisor": {"create": 3, "stale": 3}.get(how, 2), "customer": 0}
    assert ProfileVersion.objects.order_by("-pk").first().columns["shown"] == standing.shown  # type: ignore[union-attr]
    standing.internal = {"aml_rating": "high"}
    standing.save()
    assert rows.get().shown == standing.shown
    assert shown("advisor")["version"] == marks["advisor"]
    for name in ("shown", "version"):
        with pytest.raises(ValueError, match="number themselves"):
            rows.update(**{name: {}})


def test_a_row_from_before_goes_on_from_its_own_version(alice: None) -> None:
    from django.db import models

    write(risk_score=1)
    write(risk_score=1, aml_rating="high")
    rows = models.QuerySet(CustomerProfileL3)
    for former in ({}, {"advisor": {"version": 2, "at": rfc3339(now()), "hash": "of another time"}}):
        rows.update(shown=former)
        assert shown("advisor")["version"] == rows.get().version
        write(risk_score=1, aml_rating="low")
        assert (shown("customer")["version"], shown("advisor")["version"]) == (0, rows.get().version)
    write(risk_score=1)
    assert (shown("customer")["version"], shown("advisor")["version"]) == (0, 4)


# --- two worlds, one with something that is risk's alone ------------------------------------------------------------

SECRETS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a rating": {"aml_rating": "high"},
    "reasons": {"reasons": ["three deposits"]},
    "alerts": {"open_alerts": ["a-1"]},
    "a flag": {"flags": [HIDDEN]},
    "flags, none": {"flags": []},
    "a restriction": {"restrictions": [{"code": "no_complex", "visibility": "risk", "until": "2099-01-01"}]},
    "restrictions, none": {"restrictions": []},
}
# What others see of it afterwards, in order.
STORIES: dict[str, list[dict[str, Any]]] = {
    "never anything": [],
    "a score": [{"risk_score": 5}],
    "a restriction, and its end": [{"restrictions": [RULE]}, {}, {"restrictions": [RULE]}],
    "a flag, then all": [{"flags": [FLAG]}, {"flags": [FLAG], "restrictions": [RULE], "risk_level": "low"}],
}


class World:
    """What a customer and their advisor are answered, with instants of this run and ids of calls made alike."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.agents = [make_agent("customer"), make_agent("advisor"), make_agent("analyst")]

    def look(self) -> list[Any]:
        self.moments.append(rfc3339(now()))
        paths = [URL, f"{URL}?as_of=2000-01-01T00:00:00Z"]
        paths += [f"{URL}?version={number}{more}" for number in range(6) for more in ("", f"&as_of={self.moments[0]}")]
        paths += [f"{URL}?as_of={moment}" for moment in self.moments]
        paths += [
            f"{URL}/versions{query}" for query in ("", "?limit=1", "?before_version=2", "?limit=1&before_version=3")
        ]
        found = []
        for agent in self.agents:
            for path in paths:
                for _cached in range(2 if path == URL else 1):
                    answer = agent.get(path)
                    found.append((answer.status_code, answer.headers.get("ETag"), answer.content.decode()))
        client = base_redis.client_for(settings.REDIS_URL)
        # On a busy machine a reader may have given up on Redis, and filled nothing.
        for _again in range(20):
            if self.agents[1].get(URL).status_code == 404 or client.exists(prefixed(f"profile:l3:{ALICE}")):
                break
        keys = sorted(name for name in client.scan_iter(prefixed("profile:l3:*")) if name.endswith(ALICE))
        # (A generation is a random number: that there is one.)
        return [*found, *((key, held if (held := str(client.get(key)))[0] == "{" else "...") for key in keys)]


def told(stories: list[dict[str, Any]], secret: dict[str, Any] | None, *, rewritten: bool) -> list[str]:
    """A world from its beginning: each step, with something hidden before and after it, or without."""
    from memory.profiles.models import ProfileChange

    ProfileVersion.objects.all().erase()
    with recording.gathered_deletions(versions=False):
        CustomerProfileL3.objects.all().delete()
    ProfileChange.objects.all().delete()
    cache.drop([cache.Slot("default", "l3", ALICE)])
    world, seen, so_far = World(), [], {}

    def hide() -> None:
        if secret is not None:
            lists = {name for name in ("flags", "restrictions") if name in secret}
            write(**{**so_far, **secret, **{name: [*so_far.get(name, []), *secret[name]] for name in lists}})
            if rewritten:
                CustomerProfileL3.objects.update(internal={"aml_rating": "higher"})

    hide()
    seen.append(world.look())
    for step in stories:
        so_far = step
        write(**step)
        seen.append(world.look())
        hide()
        seen.append(world.look())
    return [_alike(str(one), world.moments) for one in seen]


def _alike(text: str, moments: list[str]) -> str:
    """Instants are told by how they stand to the looks: a write of the hidden would be between others."""

    def place(found: re.Match[str]) -> str:
        stamp = found[0]
        return f"<{'=' if stamp in moments else ''}{sum(moment <= stamp for moment in moments)}>"

    text = re.sub(r'"trace_id": ?"[0-9a-f]{32}"', "", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", place, text)


CASES = [(story, secret) for story in ("never anything", "a score") for secret in SECRETS]
EVERYTHING = {name: value for secret in SECRETS.values() for name, value in secret.items() if value}


@pytest.mark.parametrize(("story", "secret"), [*CASES, *((story, "everything") for story in STORIES)])
def test_a_world_with_a_secret_answers_as_one_without(alice: None, settings: Any, story: str, secret: str) -> None:
    settings.ANALYST_READS_PROFILES = True
    if story == "a score":
        make_core_customer()
        make_assessment()
        shown("customer", f"/profiles/l1/{ALICE}")
    without = told(STORIES[story], None, rewritten=False)
    hidden = SECRETS.get(secret, EVERYTHING)
    assert told(STORIES[story], hidden, rewritten=secret == "everything") == without
    assert any("no_new_purchase" in one for one in without) == ("all" in story or "restriction" in story)


@pytest.mark.parametrize("visible", [False, True])
def test_nor_does_a_deletion_tell_of_what_was_never_shown(alice: None, visible: bool) -> None:
    """Deleted, and made again for something hidden: the same as deleted, or as never made."""
    worlds = []
    for secret in (False, True):
        told([], None, rewritten=False)
        world, seen = World(), []
        if visible:
            write(restrictions=[RULE])
        if secret:
            write(restrictions=[RULE] if visible else [], aml_rating="high")
        seen.append(world.look())
        CustomerProfileL3.objects.all().delete()
        seen.append(world.look())
        if secret:
            write(aml_rating="high", flags=[HIDDEN])
        seen.append(world.look())
        write(restrictions=[RULE])
        seen.append(world.look())
        worlds.append([_alike(str(one), world.moments) for one in seen])
    assert worlds[0] == worlds[1]
    assert shown("customer", f"{URL}/versions")["items"][0]["version"] == (3 if visible else 1)
