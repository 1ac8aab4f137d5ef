"""Several processes scan at once: each customer once, whatever becomes of one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from risk.rules import side_by_side
from risk.rules.services import ScanReport
from tests.risk.rules.test_scan import command


class Child:
    """A process that has said something and ended."""

    def __init__(self, code: int, said: str) -> None:
        self.returncode, self.said = code, said

    def communicate(self) -> tuple[str, None]:
        return self.said, None

    def poll(self) -> int:
        return self.returncode


def says(customers: int, failed: list[str], left: int = 0) -> str:
    return json.dumps({"customers": customers, "hits": 2, "data_quality": 1, "failed": failed, "left": left})


def test_reports_are_added_up_and_one_that_died_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    children = [Child(0, says(4, [], left=2)), Child(-signal.SIGKILL, ""), Child(1, says(3, ["c9"]))]
    begun: list[list[str]] = []

    def start(line: list[str]) -> Any:
        begun.append(line)
        return children[len(begun) - 1]

    monkeypatch.setattr(side_by_side, "_started", start)
    report = side_by_side.scan_side_by_side(processes=3, tenant="t1")
    assert report == ScanReport(7, 4, 2, ["c9"], left=0, died=1)
    assert report.as_json()["died"] == 1
    assert all(line[-2:] == ["--tenant", "t1"] for line in begun)
    for wrong in (0, side_by_side.MOST + 1):
        with pytest.raises(ValueError, match="processes"):
            side_by_side.scan_side_by_side(processes=wrong)


def test_an_error_of_the_parent_ends_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    def start(line: list[str]) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, text=True))
        return begun[-1]

    def interrupted(*_args: Any, **_kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(side_by_side, "_started", start)
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side.scan_side_by_side(processes=2)
    assert [child.returncode for child in begun] == [-signal.SIGTERM] * 2
    for child in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)


@pytest.mark.django_db
def test_wrong_numbers_are_refused() -> None:
    assert command("scan_trades", "--processes", "0")[0] == 2
    assert command("scan_trades", "--processes", "2", "--customer", "c1")[0] == 2
