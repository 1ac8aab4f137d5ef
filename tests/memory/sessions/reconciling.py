"""Running `reconcile` as operators do."""

from __future__ import annotations

import io
import json
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError

from config.base import redis as base_redis
from memory.sessions.keys import PENDING


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of the command."""
    out = io.StringIO()
    try:
        call_command("reconcile", "--json", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, json.loads(out.getvalue() or "{}")
    return 0, json.loads(out.getvalue())


def kinds(report: dict[str, Any]) -> set[str]:
    return {finding["kind"] for finding in report["findings"]}


def lose_the_stream() -> None:
    base_redis.state().delete(PENDING())
