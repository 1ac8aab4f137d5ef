"""A demo core system: people with a year of plausible trades, and a known list of planted violations."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from memory.core.columns import FILES
from memory.core.demo import cases_008
from memory.core.demo.background import live
from memory.core.demo.cases import plant
from memory.core.demo.stage import Planted
from memory.core.demo.world import Cells, World


@dataclass(frozen=True)
class Demo:
    """tables: file name to rows of cells. planted: what the rules must find in them."""

    tables: dict[str, list[Cells]]
    planted: Planted


def generate(*, customers: int, advisors: int, seed: int, days: int, end: date) -> Demo:
    """The same arguments make the same demo. end: the last day with trades; days: how many before it.

    Half of the customers at most are planted cases, as many as there are; the others trade quietly.
    """
    world = World(seed=seed, advisors=advisors, days=days, end=end)
    planted = Planted()
    plant(world, planted, most=max(1, customers // 2))
    for _ in range(customers - len(world.tables["customers.csv"])):
        level = world.rng.choices((1, 2, 3, 4, 5), (15, 25, 30, 20, 10))[0]
        kind = "entity" if world.rng.random() < 0.08 else "natural"
        investor = "professional" if world.rng.random() < 0.05 else "ordinary"
        person = world.person(level, kind=kind, investor_type=investor)
        live(world, person, is_lowest=level == 1 and world.rng.random() < 0.4)
    world.tables["trades.csv"].sort(key=lambda row: (row["traded_at"], row["trade_id"], row["version"]))
    told = (customers, advisors, seed, days, end.isoformat())
    cases_008.plant(world, planted, tag=hashlib.sha256(repr(told).encode()).hexdigest()[:8])
    return Demo(world.tables, planted)


def write_csv(demo: Demo, directory: Path) -> None:
    """The six files, as import_core reads them."""
    directory.mkdir(parents=True, exist_ok=True)
    for spec in FILES:
        with (directory / spec.name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, [column.name for column in spec.columns], lineterminator="\n")
            writer.writeheader()
            writer.writerows(demo.tables[spec.name])
