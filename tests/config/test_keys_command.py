"""`manage.py keys`: the table, the document, and the check of a live Redis."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command

from config import key_registry
from config.base.keys import Key
from config.base.redis import state
from config.key_registry import duration
from tests.services import RedisServer


def keys_command(*arguments: str) -> tuple[int, str, str]:
    out, error = StringIO(), StringIO()
    try:
        call_command("keys", *arguments, stdout=out, stderr=error)
    except SystemExit as exit_:
        return int(str(exit_.code)), out.getvalue(), error.getvalue()
    return 0, out.getvalue(), error.getvalue()


def check() -> tuple[int, dict[str, str]]:
    """Exit code, and fault by key name without the test's prefix."""
    code, out, _error = keys_command("--check", "--json")
    found = json.loads(out)["findings"]
    return code, {finding["key"].split(":", 1)[1]: finding["fault"] for finding in found}


def test_every_rooms_keys_are_in_the_table() -> None:
    _code, out, _error = keys_command()
    for name in ("sess:{agent}:{session_id}:msgs", "sess:pending", "profile:l1:{customer_id}", "risk:pub:alert"):
        assert f"`{name}`" in out
    rows = json.loads(keys_command("--json")[1])
    assert all(row["on_loss"] and row["writers"] and row["readers"] for row in rows)
    assert {row["pattern"]: row["ttl_seconds"] for row in rows}["profile:l3:{customer_id}"] == 300


def test_the_document_is_up_to_date() -> None:
    assert keys_command("--fresh") == (0, "", "")


def test_a_clean_server_is_clean(settings: Any) -> None:
    key_registry.load()
    name = settings.REDIS_KEY_PREFIX
    state().set(f"{name}:profile:l1:C-1", "{}", ex=600)
    state().set(f"{name}:acme:profile:l1:C-1", "{}", ex=600)  # another tenant's
    state().xadd(f"{name}:sess:pending", {"a": "1"})
    assert check() == (0, {})
    assert "2 keys" not in keys_command("--check")[1]


def test_each_fault_is_named(settings: Any) -> None:
    name = settings.REDIS_KEY_PREFIX
    state().set(f"{name}:profile:l1:C-1", "{}")
    state().set(f"{name}:profile:l1:C-2", "{}", ex=601)
    state().hset(f"{name}:profile:l1:C-3", "a", "b")
    state().set(f"{name}:who:knows", "1", ex=5)
    state().set(f"{name}:profile:l1:a b", "1", ex=5)
    state().set(f"{name}:risk:pub:alert", "1", ex=5)
    state().xadd(f"{name}:sess:pending", {"a": "1"})
    state().expire(f"{name}:sess:pending", 60)
    assert check() == (
        1,
        {
            "profile:l1:C-1": "no TTL",
            "profile:l1:C-2": "TTL too long",
            "profile:l1:C-3": "wrong type",
            "profile:l1:a b": "unknown name",
            "who:knows": "unknown name",
            "risk:pub:alert": "wrong type",
            "sess:pending": "TTL where none may be",
        },
    )
    code, out, _error = keys_command("--check")
    assert code == 1
    assert "7 keys looked at, 7 not as declared" in out


def test_the_cache_server_is_walked_too_and_each_finding_says_where(
    own_redis_server: RedisServer, settings: Any, tmp_path: Path
) -> None:
    name = settings.REDIS_KEY_PREFIX
    answer = f"{name}:cache:answer:default:{'a' * 64}"
    cache_server = RedisServer(tmp_path / "cache").start()
    try:
        settings.CACHE_REDIS_URL = cache_server.url
        cache = cache_server.client()
        state().set(f"{name}:profile:l1:C-1", "{}", ex=600)
        cache.set(answer, "{}", ex=3600)
        cache.set(f"{name}:1:what-django-caches", "x", ex=60)
        assert check() == (0, {})
        _code, out, _error = keys_command("--check", "--json")
        assert json.loads(out)["servers"] == {"REDIS_URL": 1, "CACHE_REDIS_URL": 1, "CHANNEL_REDIS_URL": 0}
        cache.persist(answer)
        cache.set(f"{name}:profile:l1:C-2", "{}", ex=600)
        state().set(answer, "{}", ex=3600)
        cache.set(f"{name}:who:knows", "1")
        code, out, _error = keys_command("--check", "--json")
        found = {
            (one["server"], one["key"].removeprefix(f"{name}:"), one["fault"]) for one in json.loads(out)["findings"]
        }
        assert code == 1
        assert found == {
            ("CACHE_REDIS_URL", answer.removeprefix(f"{name}:"), "no TTL"),
            ("CACHE_REDIS_URL", "profile:l1:C-2", "wrong server"),
            ("CACHE_REDIS_URL", "who:knows", "unknown name"),
            ("REDIS_URL", answer.removeprefix(f"{name}:"), "wrong server"),
        }
        cache_server.kill()
        code, _out, error = keys_command("--check")
        assert (code, "CACHE_REDIS_URL" in error) == (2, True)
    finally:
        cache_server.kill()


def test_the_channels_server_holds_nothing_that_is_declared(settings: Any) -> None:
    name = settings.REDIS_KEY_PREFIX
    channels = redis.Redis.from_url(settings.CHANNEL_REDIS_URL)
    for key in ("asgi:group:officers", "somebody:elses", "profile:l1:C-1"):
        channels.set(f"{name}:{key}", "1", ex=60)
    assert check() == (1, {"profile:l1:C-1": "wrong server"})


def test_one_server_for_all_is_walked_once(settings: Any) -> None:
    settings.CACHE_REDIS_URL = settings.CHANNEL_REDIS_URL = settings.REDIS_URL
    state().set(f"{settings.REDIS_KEY_PREFIX}:profile:l1:C-1", "{}", ex=600)
    state().set(f"{settings.REDIS_KEY_PREFIX}:cache:answer:default:{'a' * 64}", "{}", ex=600)
    state().set(f"{settings.REDIS_KEY_PREFIX}:asgi:group:officers", "x", ex=600)
    assert check() == (0, {})
    assert "2 keys looked at, 0 not as declared (2 on REDIS_URL, CACHE" in keys_command("--check")[1]


def test_names_that_are_no_text_and_prefixes_with_stars(settings: Any) -> None:
    settings.REDIS_KEY_PREFIX = before = f"{settings.REDIS_KEY_PREFIX}:a*[b]"
    raw = f"{before}:".encode() + b"\xff\xfe"
    state().set(raw, "1", ex=5)
    code, findings = check()
    assert code == 1
    assert list(findings.values()) == ["unknown name"]
    settings.REDIS_KEY_PREFIX = before.replace("*", "x")
    assert check() == (0, {})


def test_thousands_of_keys_and_some_that_expire_meanwhile(settings: Any) -> None:
    pipe = state().pipeline(transaction=False)
    for number in range(3000):
        pipe.set(f"{settings.REDIS_KEY_PREFIX}:profile:l1:C-{number}", "{}", px=600_000 if number % 3 else 30)
    pipe.execute()
    code, _out, _error = keys_command("--check")
    assert code == 0


def test_redis_away_is_a_sentence_and_exit_code_2(own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    code, _out, error = keys_command("--check")
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert "cannot be read" in error


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "-"), (7200, "2 h"), (86400, "24 h"), (600, "10 m"), (90, "90 s"), (2592000, "30 d")]
)
def test_durations(seconds: int | None, said: str) -> None:
    assert duration(seconds) == said


def test_a_pipe_in_a_text_does_not_break_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.base.keys._registry", {})
    key = Key("a:{x}", "string", 60, writers="a|b", readers="c", on_loss="d")
    assert "a\\|b" in key_registry.as_markdown([key])
