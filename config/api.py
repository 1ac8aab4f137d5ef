"""The HTTP API: one NinjaAPI, the rooms' routers, one shape of error."""

from __future__ import annotations

import json
import logging
import math
import re
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser

from config.base.errors import DomainError, invalid_request
from config.base.outages import outage
from config.base.redis import RedisUnavailable
from config.base.trace import current_trace_id
from config.logs import route_of
from config.middleware import problem_response
from config.queries import refuse_unknown_queries
from guard.idempotency.http import honour

logger = logging.getLogger(__name__)


# What is written as JSON and is no value that can be kept: said with another status than what is not JSON at all.
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def _unkept(reason: str) -> DomainError:
    return DomainError("INVALID_REQUEST", f"the body {reason}")


def _refuse_constant(name: str) -> Any:
    raise _unkept(f"holds {name}, which is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Readers differ in which one they take: what one has checked, another would act on.
        raise _unkept("has an object that gives one name twice")
    return value


def parse_json(body: bytes) -> Any:
    """Strict JSON in UTF-8.

    Errors: BODY_TOO_LARGE (413), INVALID_JSON (400), INVALID_REQUEST (422) for what is well-formed and would not come
    back as it is: NaN and infinities, lone surrogates, names given twice, numbers of more than 4300 digits, nesting
    past what Python can read.
    """
    if len(body) > settings.MAX_BODY_BYTES:
        raise DomainError("BODY_TOO_LARGE", f"the body is {len(body)} bytes; the limit is {settings.MAX_BODY_BYTES}")
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
        if _HALF_A_PAIR.search(text):
            # "\ud800" is valid JSON and is no text: no database stores it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise DomainError("INVALID_JSON", f"the body is not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise _unkept("holds half of a surrogate pair (\\ud800 to \\udfff), which is no text") from None
    except RecursionError:
        raise _unkept("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DomainError(
            "INVALID_JSON", f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except ValueError:
        raise _unkept("holds a number of more than 4300 digits") from None  # Python's own limit
    return value


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> Any:
        length = request.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > settings.MAX_BODY_BYTES:
            limit = settings.MAX_BODY_BYTES
            raise DomainError("BODY_TOO_LARGE", f"the body is {length[:20]} bytes; the limit is {limit}")
        request.parsed_body = parse_json(request.body)  # type: ignore[attr-defined]
        return request.parsed_body  # type: ignore[attr-defined]


api = NinjaAPI(
    title="Xinghuo",
    version="1",
    description=(
        "Shared memory, guard and oversight for the agents of a wealth manager. Every write takes the header "
        "`Idempotency-Key` (1 to 64 of A-Z a-z 0-9 _ . -): the same key and request within 24 h is done once, and its "
        "answer repeated with `Idempotent-Replayed: true`."
    ),
    parser=StrictParser(),
    urls_namespace="api",
    docs_url="/docs",
)


def _problem(error: DomainError) -> HttpResponse:
    response = problem_response(error, current_trace_id())
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if error.status == 503 or "retry_after" in error.extra:
        response["Retry-After"] = str(math.ceil(error.extra.get("retry_after", 1)))
    return response


@api.exception_handler(DomainError)
def on_domain_error(request: HttpRequest, error: DomainError) -> HttpResponse:
    return _problem(error)


@api.exception_handler(ValidationError)
def on_validation_error(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return _problem(invalid_request(error.errors))


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    if isinstance(error.__context__, DomainError):
        # Ninja answers whatever the parser raises with a 400 of its own; ours says which limit or which byte.
        return _problem(error.__context__)
    code = {400: "INVALID_JSON", 404: "NOT_FOUND"}.get(error.status_code, "INVALID_REQUEST")
    return _problem(DomainError(code, str(error)))


@api.exception_handler(RequestDataTooBig)
def on_body_too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    # Django's own bound, met by the length that the header claims, before a byte is read into memory.
    return _problem(DomainError("BODY_TOO_LARGE", f"the limit is {settings.MAX_BODY_BYTES} bytes"))


@api.exception_handler(UnreadablePostError)
def on_broken_body(request: HttpRequest, error: UnreadablePostError) -> HttpResponse:
    return _problem(DomainError("INVALID_JSON", "the body ended before it was whole"))


@api.exception_handler(RedisUnavailable)
@api.exception_handler(OperationalError)
@api.exception_handler(InterfaceError)
def on_outage(request: HttpRequest, error: Exception) -> HttpResponse:
    return _problem(outage(error))


@api.exception_handler(Exception)
def on_fault(request: HttpRequest, error: Exception) -> HttpResponse:
    # The message of an unknown exception may quote customer data: the log gets its type and place, not its text.
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
    logger.error("unhandled %s at %s on %s %s", type(error).__name__, where, request.method, route_of(request))
    return _problem(DomainError("INTERNAL"))


def _mount() -> None:
    from guard.access.api import router as tokens
    from guard.admission.api import router as admissions
    from guard.inputs.api import router as inputs
    from memory.profiles.answers.api import router as answers
    from memory.profiles.api import router as profiles
    from memory.profiles.drafts.api import router as drafts
    from memory.profiles.queries.api import router as queries
    from memory.profiles.snapshots.api import router as snapshots
    from memory.sessions.api import router as sessions
    from risk.alerts.api import router as alerts
    from risk.alerts.listing import router as alert_list
    from risk.conduct.api import router as conduct
    from risk.rules.api import router as rules

    api.add_router("", tokens)
    api.add_router("", admissions)
    api.add_router("", inputs)
    api.add_router("", sessions)
    api.add_router("", profiles)
    api.add_router("", snapshots)
    api.add_router("", answers)
    api.add_router("", drafts)
    api.add_router("", queries)
    api.add_router("", conduct)
    api.add_router("", rules)
    api.add_router("", alert_list)
    api.add_router("", alerts)


_mount()
honour(api)
refuse_unknown_queries(api)
