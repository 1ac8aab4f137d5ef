"""Somebody has written under the name of a kept answer: it is none, and the request is done."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from config.base import redis as base_redis
from guard.access.services import Caller
from guard.idempotency.keys import IDEM
from guard.idempotency.records import Answer, Claim, begin

ALICE = Caller("default", "customer", "alice")
DIGEST = "d" * 64


@pytest.mark.parametrize(
    "junk",
    [{"status": "junk"}, {"status": ""}, {"status": "２０１"}, {"status": "9999"}, {"headers": "junk"},
     {"headers": "[1]"}, {"headers": '{"ETag": 5}'}, {"headers": '{"ETag": "a\\nSet-Cookie: b"}'}, {"until": "junk"}],
)  # fmt: skip
def test_what_is_no_answer_is_absent(junk: dict[str, str], caplog: Any) -> None:
    first = begin(ALICE, "key-1", DIGEST)
    assert isinstance(first, Claim)
    assert first.save(Answer(201, {"ETag": "x"}, "{}"))
    assert begin(ALICE, "key-1", DIGEST) == Answer(201, {"ETag": "x"}, "{}")
    name = IDEM("default", actor_id="alice", key="key-1")
    base_redis.state().hset(name, mapping={f"customer:{field}": text for field, text in junk.items()})
    with caplog.at_level(logging.WARNING):
        again = begin(ALICE, "key-1", DIGEST)
    assert isinstance(again, Claim)
    assert "alice" not in caplog.text
    assert "until" in junk or "not of our making" in caplog.text
    assert again.save(Answer(200, {}, "[]"))
    assert begin(ALICE, "key-1", DIGEST) == Answer(200, {}, "[]")
