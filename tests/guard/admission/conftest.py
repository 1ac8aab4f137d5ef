"""Admission waits a tenth of a second for Redis and then does without. That is the story of the modules about outages;
the others are about what Redis answers, which on a busy machine may take longer."""

from __future__ import annotations

import pytest

from guard.admission import wires

ABOUT_OUTAGES = {"test_outages", "test_untold", "test_database_down"}


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.module.__name__.rpartition(".")[2] not in ABOUT_OUTAGES:
        monkeypatch.setattr(wires, "TIMEOUT", 2.0)
