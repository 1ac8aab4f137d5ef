"""The planted cases: violations with what they must score, and near misses that must stay silent.

A file a rule; expected scores are worked out by hand from the specification, beside each case. A short story plays
the first case of each rule, then the second, so that every file begins with what a story should not miss.
"""

from __future__ import annotations

from itertools import zip_longest

from memory.core.demo import cases_001, cases_002, cases_003, cases_004, cases_005, cases_006, cases_007
from memory.core.demo.stage import Case, Planted, Stage
from memory.core.demo.world import World

FILES = (cases_001, cases_002, cases_003, cases_004, cases_005, cases_006, cases_007)


def in_order() -> list[Case]:
    """Every case as often as its file says, the files in turn."""
    queues = [[case for times, case in file.CASES for _ in range(times)] for file in FILES]
    return [case for turn in zip_longest(*queues) for case in turn if case is not None]


def plant(world: World, planted: Planted, most: int) -> None:
    """Plays the cases, at most `most` of them."""
    for case in in_order()[:most]:
        stage = Stage(world, planted)
        case(stage)
        stage.finish()
