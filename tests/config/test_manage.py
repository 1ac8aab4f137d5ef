"""What an operator sees when a command cannot reach its database: a sentence and exit code 2, no traceback."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def run_manage(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    unset = ("DATABASE_URL", "REDIS_URL", "CORE_DATABASE_URL")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT, env={**env, "DATA_DIR": str(data_dir)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", [("scan_trades",), ("agent_key", "--agent", "customer"), ("export_hits", "-")])
def test_a_database_without_tables_is_a_sentence_that_says_what_to_run(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run_manage(tmp_path, *command)
    assert done.returncode == 2
    assert "run manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.slow
def test_a_database_that_somebody_keeps_locked_is_a_sentence(tmp_path: Path) -> None:
    """Slow: the patience for SQLite's write lock is 20 s, and this waits it out once."""
    assert run_manage(tmp_path, "migrate", "-v", "0").returncode == 0
    held = sqlite3.connect(tmp_path / "xinghuo.sqlite3", isolation_level=None)
    try:
        held.execute("BEGIN IMMEDIATE")
        done = run_manage(tmp_path, "agent_key", "--agent", "customer")
    finally:
        held.close()
    assert done.returncode == 2
    assert "locked" in done.stderr
    assert "Traceback" not in done.stderr
