"""Agents with tokens, and what they get for them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client

from config.base.errors import DomainError
from guard.access import services, tokens
from guard.access.services import authenticate, issue_key


def code_of(work: Any, **call: Any) -> str:
    with pytest.raises(DomainError) as refusal:
        work(**call)
    return refusal.value.code


def made(agent: str = "customer", actor_id: str = "alice", **more: Any) -> tuple[services.IssuedKey, tokens.Issued]:
    key = issue_key(agent=agent, **more)
    return key, tokens.issue_tokens(caller=authenticate(key=key.key, actor_id=actor_id))


def use(token: str, actor_id: str | None = None) -> services.Caller:
    return authenticate(key=token, actor_id=actor_id)


def elsewhere() -> None:
    """As another process, which knows nothing yet."""
    services.forget_principals()
    tokens.forget_tokens()


def claims(token: str) -> dict[str, Any]:
    content = token.split(".")[1]
    value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    return value


def post(path: str, bearer: str = "", body: Any = None, **headers: str) -> Any:
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    return Client().post(f"/api/v1{path}", body, content_type="application/json", headers=headers)
