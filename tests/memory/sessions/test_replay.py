"""Recorded conversations through a real installation, while its processes are killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from memory.sessions.replay import BadLine, Dialogue, names_of, read_dialogues
from tests.stack import LiveStack, until

PROJECT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("DIALOGUES") or PROJECT.parent / "shared" / "data" / "dialogues.jsonl")


def make_file(path: Path, dialogues: int, turns: int = 8) -> list[dict[str, Any]]:
    made = [
        {
            "dialogue_id": f"d{n}",
            "messages": [
                {"role": "user" if turn % 2 == 0 else "assistant", "content": f"{n}.{turn} 你好 👍\r\n"}
                for turn in range(turns)
            ],
        }
        for n in range(dialogues)
    ]
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in made), encoding="utf-8")
    return made


def check_stored(stack: LiveStack, source: str, dialogues: list[dict[str, Any]]) -> None:
    """Every message once, in order, byte for byte."""
    found: dict[str, list[tuple[str, str]]] = {}
    for session_id, role, content in stack.query(
        "SELECT session_id, role, content FROM agent_message ORDER BY session_id, seq"
    ):
        found.setdefault(session_id, []).append((role, content))
    for one in dialogues:
        session_id, _ = names_of(source, one["dialogue_id"])
        assert found.get(session_id) == [(m["role"], m["content"]) for m in one["messages"]], session_id


def import_report(stack: LiveStack, path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = stack.manage("import_dialogues", str(path), "--url", stack.url, "--json", *arguments, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_malformed_lines_are_named_and_the_rest_goes_on() -> None:
    good = '{"dialogue_id": 7, "messages": [{"role": "user", "content": "x", "more": 1}]}'
    lines = [
        good.encode(),
        b"",
        b"{",
        b"[]",
        b'{"dialogue_id": "a", "messages": []}',
        b'{"messages": [{"role": "user", "content": "x"}]}',
        b'{"dialogue_id": "b", "messages": [{"role": "robot", "content": "x"}]}',
        b'{"dialogue_id": "c", "messages": [{"role": "user", "content": 5}]}',
        b'{"dialogue_id": "d", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        good.encode(),
        b'{"dialogue_id": "e/:*", "messages": [{"role": "user", "content": "x"}]}',
    ]
    items = list(read_dialogues(lines, "file.jsonl"))
    assert [item.line for item in items if isinstance(item, BadLine)] == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert [item.dialogue_id for item in items if isinstance(item, Dialogue)] == ["7", "e/:*"]
    assert "line 1 already" in [item.reason for item in items if isinstance(item, BadLine)][-1]


@pytest.mark.slow  # a whole installation
def test_a_replay_survives_what_is_killed_under_it(live_stack: LiveStack, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    dialogues = make_file(path, 120)
    process = live_stack.popen(
        "import_dialogues", str(path), "--url", live_stack.url, "--json", "--concurrency", "4", stdout=-1
    )

    def answered(count: int) -> None:
        until(
            lambda: live_stack.query("SELECT COUNT(*) FROM agent_message")[0][0] >= count or process.poll() is not None,
            seconds=60,
            what=f"{count} messages",
        )

    answered(100)
    live_stack.kill("drain")
    time.sleep(0.3)
    live_stack.start("drain")
    answered(300)
    live_stack.redis.kill()
    time.sleep(1.0)
    live_stack.redis.start()
    answered(500)
    live_stack.kill("web")
    live_stack.start("web")
    answered(600)
    live_stack.redis.pause()
    time.sleep(1.0)
    live_stack.redis.resume()
    out, _ = process.communicate(timeout=120)
    report = json.loads(out.splitlines()[-1])
    assert (process.returncode, report["messages"], report["in_database"]) == (0, 960, 960), report
    check_stored(live_stack, path.name, dialogues)
    assert live_stack.query("SELECT COUNT(*) FROM message_dead_letter") == [(0,)]

    # Once more, and with a broken line: nothing is doubled, the line is named.
    with path.open("a") as file:
        file.write("{broken\n")
    code, again = import_report(live_stack, path, "--durability", "sync")
    assert (code, again["in_database"], [bad["line"] for bad in again["malformed"]]) == (1, 960, [121])
    check_stored(live_stack, path.name, dialogues)


@pytest.mark.slow  # 8,458 messages through HTTP
def test_the_recorded_conversations(live_stack: LiveStack) -> None:
    if not DATA.exists():
        pytest.skip(f"the recorded conversations are not at {DATA}; set DIALOGUES to their path")
    dialogues = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    total = sum(len(one["messages"]) for one in dialogues)
    code, report = import_report(live_stack, DATA)
    assert (code, report["messages"], report["in_database"]) == (0, total, total)
    assert report["lag_seconds"]["all_in_after"] < 5
    check_stored(live_stack, DATA.name, dialogues)
    print(report)
