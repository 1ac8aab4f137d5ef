"""Scripts whose answer is read later: it reaches whom it is for, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable, Script
from tests.services import RedisServer


def make_script(tmp_path: Path, source: str) -> Script:
    path = tmp_path / "some.lua"
    path.write_text(source)
    return Script(path)


def test_an_answer_that_nobody_reads_reaches_nobody_else(tmp_path: Path) -> None:
    script, client = make_script(tmp_path, "return ARGV[1]"), base_redis.state()
    with script.ahead(client, [], ["one"]) as underway:
        assert script(client, [], ["between"]) == "between"
        assert underway.answer() == ("one", None)
    with script.ahead(client, [], ["two"]):
        pass
    assert [script(client, [], [str(n)]) for n in range(3)] == ["0", "1", "2"]


def test_a_command_sent_along_is_answered_too(tmp_path: Path, own_redis_prefix: str) -> None:
    script, client = (
        make_script(tmp_path, f"-- {own_redis_prefix}\nreturn redis.call('INCR', KEYS[1])"),
        base_redis.state(),
    )
    key = f"{own_redis_prefix}:n"
    assert script.ahead(client, [key], (), ("GET", key)).answer() == (1, None)  # the server did not know the script
    assert script.ahead(client, [key], (), ("GET", key)).answer() == (2, "2")
    answer, other = script.ahead(client, [key], (), ("LPOP", key)).answer()
    assert (answer, type(other)) == (3, ResponseError)
    assert script(client, [key]) == 4


def test_a_script_under_way_that_the_server_does_not_know_or_that_fails(
    own_redis_server: RedisServer, tmp_path: Path
) -> None:
    script, client = make_script(tmp_path, "return redis.call('INCR', KEYS[1])"), base_redis.state()
    own_redis_server.client().script_flush()
    assert script.ahead(client, ["n"]).answer()[0] == 1
    assert script.ahead(client, ["n"]).answer()[0] == 2
    own_redis_server.client().set("text", "x")
    with pytest.raises(ResponseError):
        script.ahead(client, ["text"]).answer()
    assert script(client, ["n"]) == 3
    underway = script.ahead(client, ["n"])
    own_redis_server.kill()
    with pytest.raises(RedisUnavailable):
        [underway.answer(), script.ahead(client, ["n"]).answer()]
    with pytest.raises(RedisUnavailable):
        script.ahead(client, ["n"])
    own_redis_server.start()
    base_redis.breaker.reset()
    assert script(client, ["n"]) >= 4
