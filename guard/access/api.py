"""HTTP routes of the tokens. Answers hold secrets: nobody may keep them (`no-store`, and no replay)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from config.base.fields import canonical_json
from guard.access import tokens
from guard.access.http import AgentAuth, caller_of, refuse_body

router = Router(tags=["tokens"])


class TokensOut(Schema):
    access_token: str
    token_type: str
    expires_in: int = Field(description="seconds")
    refresh_token: str
    refresh_expires_in: int = Field(description="seconds")


class RefreshIn(Schema):
    model_config = ConfigDict(extra="forbid")
    refresh_token: str = Field(min_length=1, max_length=4096)


class RevokeIn(Schema):
    model_config = ConfigDict(extra="forbid")
    token: str | None = Field(default=None, min_length=1, max_length=4096)


def _pair(issued: tokens.Issued, status: int) -> HttpResponse:
    body = {
        "access_token": issued.access_token,
        "token_type": "Bearer",
        "expires_in": issued.expires_in,
        "refresh_token": issued.refresh_token,
        "refresh_expires_in": issued.refresh_expires_in,
    }
    response = HttpResponse(canonical_json(body), status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response


@router.post("/tokens", auth=AgentAuth(), response={201: TokensOut}, summary="Exchange the agent key for tokens")
def issue(request: HttpRequest) -> HttpResponse:
    """Takes the agent key and X-Actor-Id, no body. The tokens are that actor's, and end with the key."""
    refuse_body(request)
    return _pair(tokens.issue_tokens(caller=caller_of(request)), 201)


@router.post("/tokens/refresh", auth=None, response=TokensOut, summary="A new pair for a refresh token")
def refresh(request: HttpRequest, body: RefreshIn) -> HttpResponse:
    """The refresh token is over with that: bringing it again revokes every token that came of it (401 TOKEN_REUSED)."""
    return _pair(tokens.refresh_tokens(refresh_token=body.refresh_token), 200)


@router.post("/tokens/revoke", auth=AgentAuth(), response={204: None}, summary="End a token")
def revoke(request: HttpRequest, body: RevokeIn) -> HttpResponse:
    """An access token by itself, a refresh token with its whole family; without `token`, the one the request came
    with. 204 also where it was over already."""
    tokens.revoke_token(caller=caller_of(request), token=body.token)
    return HttpResponse(status=204)
