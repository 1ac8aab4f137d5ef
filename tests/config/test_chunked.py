"""A body that is sent in chunks is the same body, under WSGI and ASGI; past the limit it is 413 too."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.test import AsyncClient

from config.chunked import ChunkedBodies
from config.wsgi import django_application
from guard.access.services import issue_key

pytestmark = pytest.mark.django_db(transaction=True)

BODY = b'{"action":"look","slot":false}'


def ask(body: bytes, *, limit: int = 1000, ends: bool = True, path: str = "/api/v1/admissions") -> tuple[int, Any]:
    """As gunicorn hands over a request with Transfer-Encoding: chunked."""
    answered: list[str] = []
    environ = {
        "REQUEST_METHOD": "POST", "PATH_INFO": path, "SERVER_NAME": "localhost", "SERVER_PORT": "80",
        "REMOTE_ADDR": "192.0.2.1", "CONTENT_TYPE": "application/json", "HTTP_TRANSFER_ENCODING": "chunked",
        "HTTP_HOST": "localhost", "wsgi.url_scheme": "http", "wsgi.errors": io.StringIO(),
        "wsgi.input": io.BytesIO(body), "HTTP_X_ACTOR_ID": "alice",
        "HTTP_AUTHORIZATION": f"Bearer {issue_key(agent='customer').key}",
    }  # fmt: skip
    if ends:
        environ["wsgi.input_terminated"] = True
    chunks = ChunkedBodies(django_application, limit)(environ, lambda status, headers, *_: answered.append(status))
    return int(answered[0][:3]), json.loads(b"".join(chunks))


def test_it_is_read_to_its_end() -> None:
    assert ask(BODY)[0] == 201
    status, problem = ask(b'{"session_id": "chat-0123456789abcdef"}', path="/api/v1/sessions")
    assert (status, problem["session_id"]) == (201, "chat-0123456789abcdef")
    assert ask(b'{"action": 5}')[0] == 422


def test_past_the_limit_it_is_too_large() -> None:
    exactly = BODY + b" " * (1000 - len(BODY))
    assert ask(exactly)[0] == 201
    status, problem = ask(exactly + b" ")
    assert (status, problem["code"]) == (413, "BODY_TOO_LARGE")


def test_a_server_that_does_not_end_it_says_what_it_needs() -> None:
    status, problem = ask(BODY, ends=False)
    assert (status, problem["code"]) == (411, "LENGTH_REQUIRED")
    assert "Content-Length" in problem["detail"]


async def test_under_asgi_too() -> None:
    from asgiref.sync import sync_to_async

    key = (await sync_to_async(issue_key)(agent="customer")).key
    answer = await AsyncClient().post(
        "/api/v1/admissions", BODY, content_type="application/json",
        headers={"Authorization": f"Bearer {key}", "X-Actor-Id": "alice", "Transfer-Encoding": "chunked"},
    )  # fmt: skip
    assert answer.status_code == 201
