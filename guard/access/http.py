"""Authentication and authorization of HTTP routes, before a byte of the body is parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from django.http import HttpRequest
from ninja.security.base import AuthBase

from config.base.errors import DomainError
from guard.access.services import Caller, authenticate

Policy = Callable[[Caller, Mapping[str, Any]], None]


class AgentAuth(AuthBase):
    """`auth=AgentAuth(policy)` on a route: who calls, then whether they may.

    policy: given the caller and the path's parameters, raises DomainError to refuse. Ninja runs it before it
    reads the body, so a refusal costs no parsing and tells nothing about the body.
    """

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy
        super().__init__()

    def __call__(self, request: HttpRequest) -> Caller:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise DomainError("UNAUTHENTICATED", "send the header Authorization: Bearer <agent key>")
        caller = authenticate(key=key.strip(), actor_id=request.headers.get("X-Actor-Id"))
        if self._policy is not None:
            match = request.resolver_match
            self._policy(caller, match.kwargs if match else {})
        return caller


def caller_of(request: HttpRequest) -> Caller:
    """The caller that AgentAuth let in."""
    return cast(Caller, request.auth)  # type: ignore[attr-defined]


_NOTHING = frozenset({b"", b"{}"})


def refuse_body(request: HttpRequest) -> None:
    """For a route that takes none. `{}` is as good as nothing: some clients cannot send less.

    Errors: INVALID_REQUEST (422), decided from the length alone where it is longer: nothing is read of it; what is sent
    in chunks is LENGTH_REQUIRED as everywhere.
    """
    length = request.headers.get("Content-Length", "")
    if (length.isascii() and length.isdigit() and int(length[:20]) > 2) or request.body.strip() not in _NOTHING:
        raise DomainError("INVALID_REQUEST", "this route takes no body; send none")
