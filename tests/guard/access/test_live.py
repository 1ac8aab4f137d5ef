"""A running installation: what one process revokes, the others stop taking at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.stack import LiveStack

pytestmark = [pytest.mark.slow]


def ask(stack: LiveStack, path: str, bearer: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{stack.url}/api/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {bearer}", "X-Actor-Id": "alice", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_key_that_a_command_revokes_stops_at_once_in_the_server_and_its_tokens_with_it(live_stack: LiveStack) -> None:
    made = json.loads(live_stack.manage("agent_key", "--agent", "customer", "--json").stdout)
    key = made["key"]
    status, pair = ask(live_stack, "/tokens", key, {})
    assert status == 201
    revoke = (
        "from guard.access.services import revoke_key; "
        "import time; "
        "from urllib.request import Request, urlopen; "
        f"send = lambda: urlopen(Request('{live_stack.url}/api/v1/profiles/l1/alice', "
        f"headers={{'Authorization': 'Bearer {key}', 'X-Actor-Id': 'alice'}})); "
        "import urllib.error\n"
        "def status():\n"
        "    try:\n"
        "        return send().status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "assert status() == 404\n"  # known, and remembered by the server from now on
        f"revoke_key(principal_id='{made['principal']}', revoked_by='test')\n"
        "began = time.monotonic()\n"
        "while status() == 404: pass\n"
        "print(time.monotonic() - began)"
    )
    took = float(live_stack.shell(revoke).strip().splitlines()[-1])
    assert took < 1.0  # without the message it would be up to five seconds
    assert ask(live_stack, "/profiles/l1/alice", key)[1]["code"] == "KEY_REVOKED"
    assert ask(live_stack, "/profiles/l1/alice", pair["access_token"])[1]["code"] == "TOKEN_REVOKED"


def test_a_token_revoked_over_http_stops_in_the_next_request(live_stack: LiveStack) -> None:
    key = live_stack.agent_key("customer", "alice")
    _status, pair = ask(live_stack, "/tokens", key, {})
    assert ask(live_stack, "/profiles/l1/alice", pair["access_token"])[0] == 404
    live_stack.shell(
        "from guard.access import tokens; from guard.access.services import authenticate; "
        f"tokens.revoke_token(caller=authenticate(key='{key}', actor_id='alice'), token='{pair['access_token']}')"
    )
    assert ask(live_stack, "/profiles/l1/alice", pair["access_token"])[1]["code"] == "TOKEN_REVOKED"


def test_no_secret_is_in_any_log(live_stack: LiveStack) -> None:
    key = live_stack.agent_key("customer", "alice")
    _status, pair = ask(live_stack, "/tokens", key, {})
    ask(live_stack, f"/nowhere?token={pair['refresh_token']}&key={key}", pair["access_token"])
    ask(live_stack, "/tokens/refresh", "", {"refresh_token": pair["refresh_token"]})
    text = "".join(live_stack.log(name, 200_000) for name in ("web", "worker", "drain", "publish", "beat"))
    for secret in (key, pair["access_token"], pair["refresh_token"]):
        assert secret[-40:] not in text
