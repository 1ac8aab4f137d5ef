"""The one hook by which every writing route of an API honours `Idempotency-Key`."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import NinjaAPI

from config.base.offload import in_thread
from config.base.redis import RedisUnavailable
from guard.access.services import Caller
from guard.idempotency import keeper as keeping
from guard.idempotency.records import MAX_BODY, Answer, Claim, begin, digest_of, subject_of, tell_not_kept

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Of an answer's headers, what belongs to it and not to the moment.
_KEPT_HEADERS = ("Content-Type", "ETag", "Location", "Cache-Control")
# Headers that make another request of the same body.
_CONDITIONS = ("If-Match", "If-None-Match")
_CLAIM = "_idempotency_claim"
_REPLAY_POLICY = "_idempotency_replay_policy"

View = Callable[..., Any]


def honour(api: NinjaAPI) -> None:
    """Every writing route of `api`, whichever room's, honours the header.

    Steps: 1. who calls and whether they may, then the body's shape: refused there, the key is not touched; 2. the key
    is taken, or the answer is a replay, 409 or 422; 3. the route; 4. a 2xx answer is kept, anything else frees the key.
    Cost: without the header nothing, with it 2 round trips, 1 for a replay.
    Routes without a caller (`auth=None`) know no actor whose key it could be: there the header does nothing.
    """
    api.add_decorator(_within, mode="operation")
    api.add_decorator(_around, mode="view")


def checked_on_replay(policy: Callable[[Caller, Any], None]) -> Callable[[View], View]:
    """For a route whose caller's right hangs on the body: authentication has decided by key and path alone, and what
    was answered is told again only where `policy` still lets the body's values pass. Beneath the router's decorator."""

    def mark(view: View) -> View:
        setattr(view, _REPLAY_POLICY, policy)
        return view

    return mark


def _key_of(request: HttpRequest) -> str | None:
    return request.headers.get(HEADER) if request.method in _WRITES else None


def _start(request: HttpRequest, key: str, policy: Callable[[Any], None] | None = None) -> HttpResponse | None:
    """Takes the key; or the answer that there was. After authentication, and after the body was found valid.
    policy: raises where this caller may no longer hear it."""
    caller = getattr(request, "auth", None)
    if not isinstance(caller, Caller):
        return None
    body = getattr(request, "parsed_body", request.body)
    conditions = [request.headers.get(name, "") for name in _CONDITIONS]
    digest = digest_of(str(request.method), request.get_full_path(), body, *conditions)
    match = request.resolver_match
    found = begin(caller, key, digest, subject_of(caller, match.kwargs if match else {}, body))
    if isinstance(found, Answer):
        if policy is not None:
            policy(caller)
        response = HttpResponse(found.body, status=found.status)
        for name in _KEPT_HEADERS:
            if name in found.headers:
                response[name] = found.headers[name]
            else:
                response.headers.pop(name, None)
        response[REPLAYED] = "true"
        return response
    keeping.keeper.keep(found)
    setattr(request, _CLAIM, found)
    return None


def _policy(view: View, values: dict[str, Any]) -> Callable[[Any], None] | None:
    found: Callable[[Caller, Any], None] | None = getattr(view, _REPLAY_POLICY, None)
    return (lambda caller: found(caller, values.get("body"))) if found is not None else None


def _end(request: HttpRequest, response: HttpResponseBase | None) -> None:
    """Keeps what was answered, or frees the key. response: None where the work ended without one."""
    claim: Claim | None = getattr(request, _CLAIM, None)
    if claim is None:
        return
    keeping.keeper.drop(claim)
    if response is None or not 200 <= response.status_code < 300:
        claim.free()
        return
    answer = _answer(response)
    try:
        kept = claim.put(answer)
    except RedisUnavailable:
        # The work is done and its caller is told so; nobody waits for what is kept for repeats.
        keeping.keeper.keep_answer(claim, answer)
    else:
        if not kept:
            tell_not_kept()


def _answer(response: HttpResponseBase) -> Answer:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    body: str | None = None
    # Secrets are not to be written down anywhere; streams have no end yet.
    if isinstance(response, HttpResponse) and "no-store" not in headers.get("Cache-Control", ""):
        with contextlib.suppress(UnicodeDecodeError):
            body = response.content.decode() if len(response.content) <= MAX_BODY else None
    return Answer(response.status_code, headers, body)


def _within(view: View) -> View:
    """Around a route's own function, which ninja calls with checked values."""
    if inspect.iscoroutinefunction(view):

        @functools.wraps(view)
        async def once_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            key = _key_of(request)
            if key is not None:
                answer = await in_thread(functools.partial(_start, request, key, _policy(view, kwargs)))
                if answer is not None:
                    return answer
            return await view(request, *args, **kwargs)

        return once_async

    @functools.wraps(view)
    def once(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        key = _key_of(request)
        if key is not None:
            answer = _start(request, key, _policy(view, kwargs))
            if answer is not None:
                return answer
        return view(request, *args, **kwargs)

    return once


def _around(run: View) -> View:
    """Around the whole operation, whose answer is what the client gets: errors are answers by then."""
    if inspect.iscoroutinefunction(run):

        @functools.wraps(run)
        async def ended_async(request: HttpRequest, **kwargs: Any) -> Any:
            response = None
            try:
                response = await run(request, **kwargs)
                return response
            finally:
                if hasattr(request, _CLAIM):
                    await in_thread(functools.partial(_end, request, response), always=True)

        return ended_async

    @functools.wraps(run)
    def ended(request: HttpRequest, **kwargs: Any) -> Any:
        response = None
        try:
            response = run(request, **kwargs)
            return response
        finally:
            _end(request, response)

    return ended
