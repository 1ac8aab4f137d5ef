"""A running installation seals what happens within seconds; what it exports is proven where there is nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.stack import LiveStack, until

pytestmark = [pytest.mark.slow]
PROJECT = Path(__file__).resolve().parents[3]


def refused(stack: LiveStack) -> None:
    """An analyst asks for what it may not see: one row."""
    key = stack.agent_key("analyst", "ana")
    request = urllib.request.Request(
        f"{stack.url}/api/v1/profiles/l1/alice", headers={"Authorization": f"Bearer {key}"}
    )
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(request, timeout=10)
    assert answer.value.code == 403


def unsealed(stack: LiveStack) -> float:
    with urllib.request.urlopen(f"{stack.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("xinghuo_audit_unsealed_rows"))


def elsewhere(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """verify_audit in a process that reaches no database and no Redis, has its own directory and another secret."""
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    env = {
        **os.environ,
        "DATABASE_URL": "mysql://nobody@127.0.0.1:1/none",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "SECRET_KEY": "another machine's",
        "DATA_DIR": str(tmp_path / "elsewhere"),
    }
    env.pop("AUDIT_SEAL_KEYS", None)
    done = subprocess.run(
        [sys.executable, "manage.py", "verify_audit", *arguments, "--json"],
        cwd=PROJECT, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_sealed_within_seconds_and_proven_on_another_machine(live_stack: LiveStack, tmp_path: Path) -> None:
    refused(live_stack)
    until(lambda: unsealed(live_stack) == 0, seconds=15)
    export, anchors, keys = (str(tmp_path / name) for name in ("log.jsonl", "anchors", "keys"))
    live_stack.manage("audit_export", export)
    live_stack.manage("audit_anchor", "--write", anchors)
    (tmp_path / "keys").write_text(
        live_stack.shell(
            "from guard.audit import sealkeys; [print(f'{name}:{key.hex()}') for name, key in sealkeys.ring().items()]"
        )
        .strip()
        .splitlines()[-1]
        + "\n"
    )
    assert elsewhere(tmp_path, "--export", export)[0] == 2, "without the keys nothing was checked"
    code, told = elsewhere(tmp_path, "--export", export, "--keys", keys)
    assert (code, told["findings"]) == (3, []), "whole; of the tail nobody can say without an anchor"
    assert told["rows"] >= 2
    code, told = elsewhere(tmp_path, "--export", export, "--keys", keys, "--anchor", anchors)
    assert (code, told["findings"]) == (0, [])
    text = Path(export).read_text()
    Path(export).write_text(text.replace('"AUTH_403_SCOPE"', '"AUTH_403_OTHER"', 1))
    code, told = elsewhere(tmp_path, "--export", export, "--keys", keys)
    assert (code, told["findings"][0]["row"]) == (1, told["first_row"])
