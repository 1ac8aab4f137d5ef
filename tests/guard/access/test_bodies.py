"""Routes that take no body take none: what is sent there is an error of the caller's, and not read past its length."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.memory.drafts.helpers import make_draft
from tests.memory.profiles.helpers import make_agent

pytestmark = pytest.mark.django_db

BARE = {
    "/api/v1/tokens": ("customer", "/tokens"),
    "/api/v1/trades/{trade_id}/evaluate": ("risk", "/trades/none-such/evaluate"),
    "/api/v1/drafts/{draft_id}/submit": ("advisor", "/drafts/{}/submit"),
}


def test_these_are_the_routes_without_a_body() -> None:
    schema = Client().get("/api/v1/openapi.json").json()
    found = {path for path, verbs in schema["paths"].items() if "post" in verbs and "requestBody" not in verbs["post"]}
    assert found == set(BARE)


def url_of(path: str) -> tuple[Any, str]:
    name, url = BARE[path]
    agent = make_agent(name)
    if "{}" in url:
        url = url.format(make_draft().draft_id)
    return agent, url


@pytest.mark.parametrize("path", BARE)
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"x" * 3_000_000, b'{"a":1}', b"[]", b"null", b'""'], ids=range(7))
def test_a_body_is_refused(path: str, body: Any) -> None:
    agent, url = url_of(path)
    answer = agent.call("POST", url, body, **{"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), url


@pytest.mark.parametrize("path", BARE)
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_nothing_is_no_body(path: str, body: Any) -> None:
    agent, url = url_of(path)
    answer = agent.call("POST", url, body, **{"If-Match": '"1"'})
    assert answer.status_code in (200, 201) or answer.json()["code"] == "TRADE_NOT_FOUND", answer.content
