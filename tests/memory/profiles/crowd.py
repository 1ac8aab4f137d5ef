"""Eight processes that read and write profiles at random and note what they see.

Each process writes the number of the version that its save made into a table they share, once the call has returned.
A read that answers an older version than the table had before the read began is stale.
`python -m tests.memory.profiles.crowd` prints the counts as JSON.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable

import django

PROCESSES = 8
CUSTOMERS = 8
PLACES = 3 * CUSTOMERS
WRITES = 0.12
SIZE = 8


class Floors:
    """versions[process][place], in memory that the forked processes share; each writes its own row alone."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, PROCESSES * PLACES * SIZE)

    def set(self, process: int, place: int, version: int) -> None:
        struct.pack_into("q", self._memory, (process * PLACES + place) * SIZE, version)

    def of(self, place: int) -> int:
        return max(
            struct.unpack_from("q", self._memory, (process * PLACES + place) * SIZE)[0] for process in range(PROCESSES)
        )


def work(process: int, operations: int, seed: int, floors: Floors) -> Counter[str]:
    from config.base.errors import DomainError
    from guard.access.services import Caller
    from memory.profiles import selectors, services
    from memory.profiles.models import CustomerProfileL1, CustomerProfileL2

    dice = random.Random(seed * 100 + process)
    seen: Counter[str] = Counter()
    risk, advisor = Caller("default", "risk", "officer"), Caller("default", "advisor", "wei")

    def version_of(read: Callable[[], dict[str, object]]) -> int:
        try:
            return int(str(read()["version"]))
        except DomainError as error:
            if error.code != "PROFILE_NOT_FOUND":
                raise
            return 0

    def read(layer: int, name: str) -> int:
        own = Caller("default", "customer", name)
        if layer == 0:
            return version_of(lambda: selectors.read_l1(caller=dice.choice((own, risk)), customer_id=name))
        if layer == 1:
            return version_of(lambda: selectors.read_l2(caller=risk, customer_id=name, advisor_id="wei"))
        # The advisor's part: each reader's part has a version of its own, and every write here moves this one.
        return version_of(lambda: selectors.read_l3(caller=advisor, customer_id=name))

    def write(layer: int, name: str) -> int:
        own, text = Caller("default", "customer", name), f"{process}-{dice.random()}"
        if layer == 0 and dice.random() < 0.5:
            return services.write_l1(caller=own, customer_id=name, payload={"occupation": text}).version
        if layer == 0:
            rows = CustomerProfileL1.objects.filter(customer_id=name)
            standing = int(rows.values_list("version", flat=True)[0])
            rows.update(payload={"schema_version": 1, "occupation": text})
            return standing + 1  # or later, which an update does not say
        if layer == 1:
            row, made = CustomerProfileL2.objects.get_or_create(customer_id=name, advisor_id="wei")
            if made:
                return row.version
            row.payload = {"schema_version": 1, "stage": text}
            if dice.random() < 0.5:
                row.save()
                return row.version
            CustomerProfileL2.objects.bulk_update([row], ["payload"])
            return row.version + 1
        until = f"{dice.randrange(2030, 2200)}-01-01T00:00:00.{dice.randrange(10**6):06d}Z"
        return services.write_l3(caller=risk, customer_id=name, payload={"valid_until": until}).version

    for _ in range(operations):
        place = dice.randrange(PLACES)
        layer, name = place // CUSTOMERS, f"crowd-{place % CUSTOMERS}"
        if dice.random() < WRITES:
            floors.set(process, place, max(write(layer, name), floors.of(place)))
            seen["writes"] += 1
        else:
            floor = floors.of(place)
            version = read(layer, name)
            seen["reads"] += 1
            seen["stale"] += version < floor
            seen["missing"] += version == 0
    return seen


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.db import connections

    from config.base.clock import now
    from config.base.redis import forget_clients
    from memory.core.models import CoreAssignment
    from memory.profiles.models import CustomerProfileL1

    for number in range(CUSTOMERS):  # of l2 and l3 there is none at first
        CustomerProfileL1.objects.get_or_create(customer_id=f"crowd-{number}", defaults={"core_synced_at": now()})
        CoreAssignment.objects.get_or_create(customer_id=f"crowd-{number}", advisor_id="wei")
    connections.close_all()
    forget_clients()
    floors, children, began = Floors(), [], time.monotonic()
    for process in range(PROCESSES):
        out, back = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            status = 1
            try:
                found = work(process, options.operations // PROCESSES, options.seed, floors)
                os.write(back, json.dumps(found).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(back)
        children.append((child, out))
    total: Counter[str] = Counter()
    failed = 0
    for child, out in children:
        with os.fdopen(out) as pipe:
            text = pipe.read()
        failed += os.waitpid(child, 0)[1] != 0
        total.update(json.loads(text) if text else {})
    print(json.dumps({**total, "failed": failed, "seconds": round(time.monotonic() - began, 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
