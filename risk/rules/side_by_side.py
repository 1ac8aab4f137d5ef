"""A scan by several processes: each is a scan of its own, and the claims share the customers out among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from risk.rules.services import ScanReport

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
MOST = 64


def scan_side_by_side(*, processes: int, tenant: str | None = None) -> ScanReport:
    """Scans what is marked, with so many processes, and waits for all of them; the sum of their reports.

    Each is `manage.py scan_trades --only-customers --json` of this installation. One that dies or says nothing is
    counted in `died`: the others take over what it had, when its claim has ended (CLAIM_SECONDS), so that nothing is
    left undone. Whatever ends this process (an interrupt, an error) ends them.
    Errors: ValueError for fewer than 1 or more than MOST.
    """
    if not 1 <= processes <= MOST:
        raise ValueError(f"{processes} processes: use 1 to {MOST}")
    command = [sys.executable, str(MANAGE), "scan_trades", "--only-customers", "--json"]
    if tenant is not None:
        command += ["--tenant", tenant]
    children = [_started(command) for _ in range(processes)]
    total = ScanReport()
    try:
        for child in children:
            said, _ = child.communicate()
            _add(total, child.returncode, said)
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
                child.wait()
    return total


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))  # noqa: S603 - our own


def _add(total: ScanReport, code: int, said: str) -> None:
    try:
        told = json.loads(said.splitlines()[-1])
        if code not in (0, 1):
            raise ValueError(code)
        total.customers += int(told["customers"])
        total.hits += int(told["hits"])
        total.data_quality += int(told["data_quality"])
        total.failed.extend(told["failed"])
        # Who waits last knows best: what one had to leave, another has done since.
        total.left = int(told["left"])
    except (ValueError, KeyError, IndexError, TypeError):
        total.died += 1
