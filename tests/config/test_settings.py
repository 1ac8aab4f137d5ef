"""A wrong setting is one sentence that names the variable and the way out, for every command."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.base import env


@pytest.mark.parametrize(
    ("read", "value", "says"),
    [
        (env.envredis, "zzz", "scheme"),
        (env.envredis, "http://cache", "redis://host:6379/0"),
        (env.envredis, "redis://:secret@host:badport", "port"),
        (env.envredis, "redis://host/first", "database number"),
        (env.envprefix, "a*b", "letters, digits"),
        (env.envprefix, ":xh", "letters, digits"),
        (lambda name: env.envzone(name, "UTC"), "Mars/X", "Asia/Shanghai"),
        (lambda name: env.envchoice(name, "INFO", ("INFO", "ERROR")), "LOUD", "INFO, ERROR"),
        (lambda name: env.data_directory(name, Path("/tmp")), "/proc/nope", "cannot make"),
        (lambda name: env.envint(name, 1, low=1), "0", "outside"),
        (lambda name: env.envbool(name, False), "perhaps", "neither true nor false"),
    ],
)
def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch, read, value: str, says: str) -> None:
    monkeypatch.setenv("A_SETTING", value)
    with pytest.raises(ImproperlyConfigured) as refusal:
        read("A_SETTING")
    assert "A_SETTING" in str(refusal.value)
    assert says in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("read", "value", "wanted"),
    [
        (env.envredis, "", ""),
        (env.envredis, "redis://:p@host:6379/0", "redis://:p@host:6379/0"),
        (env.envredis, "unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        (env.envprefix, "xh:prod", "xh:prod"),
        (env.envprefix, "", ""),
        (lambda name: env.envzone(name, "UTC"), "", "UTC"),
        (lambda name: env.envchoice(name, "INFO", ("INFO", "ERROR")), "error", "ERROR"),
    ],
)
def test_what_is_right_is_taken(monkeypatch: pytest.MonkeyPatch, read, value: str, wanted: str) -> None:
    monkeypatch.setenv("A_SETTING", value)
    assert read("A_SETTING") == wanted


def test_the_data_directory_is_its_owners_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It holds conversations and names."""
    monkeypatch.setenv("A_SETTING", str(tmp_path / "var"))
    made = env.data_directory("A_SETTING", tmp_path)
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
