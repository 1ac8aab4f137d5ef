"""Most stories here are about what is refused and what comes out; small groups have stories of their own."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def groups_of_any_size(settings: Any) -> None:
    settings.ANALYTICS_MIN_GROUP = 1
