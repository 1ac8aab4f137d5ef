"""Anchors of the chain's head outside of the database."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from guard.audit import anchors
from guard.audit.anchors import append_when_due
from tests.guard.audit.sealing import anchor, dump, first, make_rows, make_sealed, put_back, seal, verify

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _due_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchors, "_next_at", None)


def test_the_command_seals_what_waits_and_appends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "anchors"
    make_rows(2)
    out = io.StringIO()
    call_command("audit_anchor", write=path, json=True, stdout=out)
    assert json.loads(out.getvalue())["total"] == 2
    make_sealed(1)
    anchor(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["number"], line["total"]) for line in lines] == [(1, 2), (2, 3)]
    assert verify(anchor=path)["exit"] == 0
    assert verify(anchor=path)["rows_after_anchor"] == 0


def test_rows_that_are_newer_than_the_anchor_are_told(tmp_path: Path) -> None:
    make_sealed(2)
    anchor(tmp_path / "anchors")
    make_sealed(3)
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], told["anchored"], told["rows_after_anchor"]) == (0, 1, 3)


@pytest.mark.parametrize("change", ["number", "mac", "total", "at", "signature", "garbage"])
def test_a_forged_anchor(change: str, tmp_path: Path) -> None:
    path = tmp_path / "anchors"
    make_sealed(1, 1)
    anchor(path)
    line = json.loads(path.read_text())
    line[change] = {"number": 1, "total": 9, "at": "2026-01-01T00:00:00.000000Z"}.get(change, "0" * 64)
    path.write_text("{x\n" if change == "garbage" else json.dumps(line) + "\n")
    assert verify(anchor=path)["exit"] == 1


def test_a_file_of_no_anchors_anchors_nothing_and_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    make_sealed(1)
    (tmp_path / "empty").write_text("\n")
    assert verify(anchor=tmp_path / "empty")["exit"] == 3
    assert verify(anchor=tmp_path / "absent")["exit"] == 2


def test_a_file_that_goes_back_tells_of_a_rollback_in_between(tmp_path: Path) -> None:
    path, other = tmp_path / "anchors", tmp_path / "other"
    make_sealed(1)
    older = dump()
    make_sealed(1, 1)
    anchor(path)
    put_back(older)
    make_sealed(1)
    anchor(other)
    path.write_text(path.read_text() + other.read_text())
    make_sealed(1, 1)
    told = verify(anchor=path)
    assert told["exit"] == 1
    assert {finding["seal"] for finding in told["findings"]} >= {2, 3}


def test_the_beginning_can_be_anchored(tmp_path: Path) -> None:
    anchor(tmp_path / "anchors")
    told = verify(anchor=tmp_path / "anchors")
    assert (told["exit"], told["head"], told["anchored"]) == (0, 0, 0)


def test_the_sealer_appends_by_itself_when_it_is_time_and_the_chain_has_grown(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert append_when_due() is False, "without the setting"
    path = tmp_path / "anchors"
    settings.AUDIT_ANCHOR_FILE = str(path)
    make_sealed(1)
    assert append_when_due() is True
    make_sealed(1)
    assert append_when_due() is False, "not a minute yet"
    monkeypatch.setattr(anchors, "_next_at", None)
    assert append_when_due() is True
    monkeypatch.setattr(anchors, "_next_at", None)
    assert append_when_due() is False, "nothing new"
    assert len(path.read_text().splitlines()) == 2
    assert verify()["exit"] == 0, "verify_audit knows the setting"


def test_after_a_rollback_the_sealer_appends_nothing_and_raises_the_alarm_and_goes_on_sealing(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AUDIT_ANCHOR_FILE = str(tmp_path / "anchors")
    make_sealed(1)
    older = dump()
    make_sealed(1)
    append_when_due()
    put_back(older)
    monkeypatch.setattr(anchors, "_next_at", None)
    with caplog.at_level(logging.ERROR):
        assert append_when_due() is False
    assert "put back" in caplog.text
    make_rows(1)
    assert seal().seals == 1
    assert first(verify())[1] == 2


def test_a_file_that_cannot_be_written_stops_no_sealing(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.AUDIT_ANCHOR_FILE = "/proc/nowhere/anchors"
    make_sealed(1)
    with caplog.at_level(logging.ERROR):
        assert append_when_due() is False
    assert "cannot be written" in caplog.text
