"""A server of the feed for each story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.risk.feed.server import serving


@pytest.fixture
def port(settings, monkeypatch) -> Iterator[int]:
    settings.FEED_HEARTBEAT_SECONDS = 1
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
    monkeypatch.setattr("risk.feed.nudge.send", lambda: True)  # these stories publish when they say so
    with serving() as number:
        yield number
