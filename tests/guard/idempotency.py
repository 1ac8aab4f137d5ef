"""Agents over HTTP with an `Idempotency-Key`, many at once, and work that takes its time."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from config.base import redis as base_redis
from guard.access.services import Caller, issue_key
from guard.idempotency import digest_of
from guard.idempotency.keys import IDEM
from memory.sessions import services
from memory.sessions.models import AgentSession

ALICE = Caller("default", "customer", "alice")
DIGEST = digest_of("POST", "/x", {})


@dataclass
class Agent:
    key: str
    actor_id: str = "alice"

    def call(self, method: str, where: str, body: Any = None, *, once: str | None = None, **headers: str) -> Any:
        if once is not None:
            headers["Idempotency-Key"] = once
        data = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        return Client().generic(
            method,
            f"/api/v1{where}",
            data=data,
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.key}", "X-Actor-Id": self.actor_id, **headers},
        )

    def post(self, where: str, body: Any = None, **more: Any) -> Any:
        return self.call("POST", where, body, **more)


def make_agent(agent: str = "customer", actor_id: str = "alice", tenant: str = "default") -> Agent:
    return Agent(issue_key(agent=agent, tenant=tenant).key, actor_id)


def code_of(response: Any) -> tuple[int, str]:
    return response.status_code, response.json().get("code", "")


def replayed(response: Any) -> bool:
    return response.headers.get("Idempotent-Replayed") == "true"


def sessions_made() -> int:
    return AgentSession.objects.count()


def new_key() -> str:
    return f"key-{uuid.uuid4().hex}"


def kept(key: str, actor_id: str = "alice") -> dict[str, str]:
    return base_redis.state().hgetall(IDEM(actor_id=actor_id, key=key))


@contextmanager
def timed(most: float) -> Iterator[None]:
    """What is added to a call, with what a busy machine adds."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < most + 0.15


class Slow:
    """Opening a session waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go, self.calls = threading.Event(), threading.Event(), 0
        original = services.open_session

        def slowly(**arguments: Any) -> Any:
            self.calls += 1
            self.entered.set()
            assert self.go.wait(30)
            return original(**arguments)

        monkeypatch.setattr(services, "open_session", slowly)
