"""Which tests a run takes, and in which order workers take the files."""

from __future__ import annotations

from collections import Counter

import pytest

# Fixtures that lead to a database; a process that a test starts may use one without any of them.
_DATABASE = {"db", "transactional_db", "django_db_setup", "live_server", "live_stack", "own_database"}
_LONG = ("slow", "browser", "mariadb")
# Of one test with such a mark against one without.
_WEIGHT = 20


def uses_database(item: pytest.Item) -> bool:
    """Whether its result may depend on the database of the run. pytest-django lets no other test near one; of those
    that start processes, the mark `django_db` says it."""
    return bool(_DATABASE.intersection(getattr(item, "fixturenames", ()))) or bool(item.get_closest_marker("django_db"))


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Heaviest file first; the order within a file stays. Weight: its tests, those with a mark counting more."""
    weights: Counter[str] = Counter()
    for item in items:
        weights[str(item.path)] += _WEIGHT if any(item.get_closest_marker(mark) for mark in _LONG) else 1
    items.sort(key=lambda item: (-weights[str(item.path)], str(item.path)))
