"""Advisor snapshots: many readers at once, slow loads and imports; the newer one stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from config.base.keys import prefixed
from memory.core.importer import import_tables
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.snapshots import services
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
)
from tests.memory.profiles.holdings import (
    KEY,
    cached,
    copy,
    imported,
    make_alice,
    snapshot,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(transactional_db: None) -> None:
    make_alice()


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Runs them at once and gives what each answered or raised."""
    answers: list[Any] = [None] * len(work)

    def run(place: int) -> None:
        try:
            answers[place] = work[place]()
        except Exception as error:
            answers[place] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def test_of_two_hundred_readers_one_loads(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    original = services.read_core

    def read_core(**which: Any) -> Any:
        loads.append(1)
        return original(**which)

    monkeypatch.setattr(services, "read_core", read_core)
    answers = in_threads(*[snapshot] * 200)
    assert {answer["total"] for answer in answers} == {"200000.005"}
    assert len(loads) == 1
    assert CustomerProfileL2.objects.get().version == 1


def test_a_slow_load_never_puts_an_old_one_over_a_newer(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Wei's agent reads the core and is held up; 2. an import changes a position; 3. another reads, loads, fills;
    4. the slow one goes on: neither the copy nor the cache take it."""
    read, go_on = threading.Event(), threading.Event()
    original = services.read_core
    slow: list[bool] = []

    def read_core(**which: Any) -> Any:
        rows = original(**which)
        if not slow:
            slow.append(True)
            read.set()
            assert go_on.wait(20)
        return rows

    monkeypatch.setattr(services, "read_core", read_core)
    answers: list[Any] = []
    held_up = threading.Thread(target=lambda: answers.extend(in_threads(snapshot)))
    held_up.start()
    assert read.wait(20)
    imported("160000")
    assert snapshot()["total"] == "210000.005"
    go_on.set()
    held_up.join(20)
    assert answers[0]["total"] == "210000.005"  # it answers the newer copy, too
    assert cached()["total"] == copy()["total"] == snapshot()["total"] == "210000.005"


def test_a_slow_load_gives_way_to_one_that_found_the_old_figures_again(
    alice: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A copy stands; 2. other figures come, and a load that reads them is held up; 3. the first figures are back,
    and a load finds them; 4. the slow one goes on."""
    first = snapshot()["total"]
    before = CustomerProfileL2.objects.get().version
    imported("160000")
    rows = services.read_core(tenant="default", customer_id=ALICE, at=services.database_now())
    original = services.read_core

    def held_up(**which: Any) -> Any:
        monkeypatch.setattr(services, "read_core", original)
        imported("150000")
        assert snapshot()["total"] == first
        return rows

    monkeypatch.setattr(services, "read_core", held_up)
    slow = services.load_snapshot(tenant="default", advisor_id=WEI, customer_id=ALICE)
    assert slow["total"] == copy()["total"] == cached()["total"] == snapshot()["total"] == first
    assert CustomerProfileL2.objects.get().version == before


def test_a_slow_load_keeps_nothing_that_an_import_has_outdated(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    original = services.read_core

    def read_core(**which: Any) -> Any:
        found = original(**which)
        imported("160000")
        return found

    monkeypatch.setattr(services, "read_core", read_core)
    snapshot()
    assert cached() is None
    monkeypatch.setattr(services, "read_core", original)
    assert snapshot()["total"] == "210000.005"


def test_an_import_that_dies_after_its_commit_leaves_nothing_old(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The import deletes, and nothing is kept while it is at work; 2. it commits and is killed before it deletes
    again; 3. readers see the new facts at once, and are cached again when the hold has run out."""
    snapshot()
    monkeypatch.setattr(leased, "drop_quietly", lambda places: False)  # killed
    seen: list[Any] = []
    monkeypatch.setattr(
        services.core, "core_as_of", lambda tenant: seen.append(cached())
    )  # a reader in the middle, too, keeps nothing
    imported("160000")
    assert cached() is None
    assert snapshot()["total"] == "210000.005"
    assert cached() is None
    leased.client().delete(prefixed(f"{KEY}:load"))  # the 20 s are over
    assert snapshot()["total"] == "210000.005"
    assert cached()["total"] == "210000.005"
    assert seen == [None, None]


def test_an_import_invalidates_and_a_rolled_back_one_does_not(alice: None) -> None:
    from django.db import transaction

    assert snapshot()["total"] == "200000.005"
    with transaction.atomic():
        imported("160000")
        transaction.set_rollback(True)
    assert snapshot()["total"] == "200000.005"
    imported("160000")
    assert cached() is None
    assert snapshot()["total"] == "210000.005"
    # A product's new rating changes what the snapshots of its holders say.
    import_tables(tenant="default", tables={"products.csv": [{"product_id": "p5", "risk_level": "R1"}]})
    assert snapshot()["suitability_flags"]["count"] == 0
