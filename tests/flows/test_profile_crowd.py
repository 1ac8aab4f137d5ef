"""10,000 random reads and writes by 8 processes beside the running installation.

Worth its seconds: each race that the other tests force one by one is met here with others nobody thought of, in real
processes with a Redis, a database and a sweeper between them, and by every way to write.
"""

from __future__ import annotations

import json
import secrets

import pytest

from tests.stack import LiveStack

pytestmark = pytest.mark.slow


def test_no_read_is_older_than_a_save_whose_call_had_returned(live_stack: LiveStack) -> None:
    seed = secrets.randbelow(10_000)
    done = live_stack.run(["-m", "tests.memory.profiles.crowd", "--seed", str(seed)], timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert (seen["failed"], seen["stale"], seen["reads"] + seen["writes"]) == (0, 0, 10_000), (seed, seen, done.stderr)
    assert seen["writes"] > 800
    # Every write is a version of its own, without a gap, dated in order, and settled.
    rows = live_stack.query(
        "SELECT layer, customer_id, version, at, visible_at FROM profile_version ORDER BY layer, customer_id, version"
    )
    before: tuple[str, str, int, str] = ("", "", 0, "")
    for layer, customer_id, version, at, visible_at in rows:
        same = (layer, customer_id) == before[:2]
        assert version == (before[2] + 1 if same else 1)
        assert not same or str(at) > before[3]
        assert visible_at is not None
        before = (layer, customer_id, version, str(at))
    assert len(rows) >= seen["writes"]
