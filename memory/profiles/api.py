"""HTTP routes of the profiles."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Body, Router
from pydantic import BeforeValidator

from config.base.clock import rfc3339
from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from guard.access.services import Caller
from memory.profiles import policies, selectors, services
from memory.profiles.documents import Document
from memory.profiles.history import Page
from memory.profiles.schemas import L1Own, L2Own, L3Own, Versioned, instant
from memory.profiles.services import Written

router = Router(tags=["profiles"])

_READ = (
    "Answers the profile flat: `customer_id`, `version`, `updated_at` and the fields of the layer, null where they are "
    "not known. `ETag` is the version."
)
_WRITE = (
    "The body is the writer's own fields, flat. They are replaced whole: a field that is not sent is removed; fields "
    "of other writers stay and may not be sent. `If-Match: <ETag>` refuses with 409 VERSION_CONFLICT (with "
    "`current_version`) when the profile has changed since; `If-None-Match: *` writes only where there is none. "
    "Answers 201 for a new profile, else 200, with the new version."
)
_PAST = (
    "`as_of` (RFC 3339, not in the future; write `+` as `%2B`) answers exactly what this reader was given at that "
    "instant, derived fields of that instant too; `version` answers that version. Access is decided as of now. Before "
    "the first version that was kept: 404 HISTORY_STARTS_LATER with `earliest`."
)
_VERSIONS = (
    "Newest first: `version`, `at`, `visible_at` (from when readers were given it, which `as_of` compares with), "
    "`author`, `agent`, `trace_id`, `deleted` and `changed`: names of fields that differ from the version before, as "
    "far as the reader may see them (null where that one was not kept). `next` is the next page's `before_version`."
)
_DIGITS = re.compile(r"-?[0-9]{1,30}", re.ASCII)


def _digits(value: Any) -> Any:
    # An address has text alone; of that, pydantic would read " 1", "+1", "1.0" and "1_0" as numbers.
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError("is no whole number; send digits alone")
    return value


Number = Annotated[int, BeforeValidator(_digits)]  # of a query string
_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,9})"?\Z')


def _l1(action: Any) -> AgentAuth:
    return AgentAuth(lambda caller, path: policies.may_l1(caller, action, customer_id=path["customer_id"]))


def _l2(action: Any) -> AgentAuth:
    return AgentAuth(
        lambda caller, path: policies.may_l2(
            caller, action, customer_id=path["customer_id"], advisor_id=path["advisor_id"]
        )
    )


def _l3(action: Any) -> AgentAuth:
    return AgentAuth(lambda caller, path: policies.may_l3(caller, action, customer_id=path["customer_id"]))


def _takes(schema: type[Versioned]) -> dict[str, Any]:
    """The OpenAPI page shows the schema; the service checks it, for Python callers too."""
    content = {"application/json": {"schema": schema.model_json_schema(ref_template="#/components/schemas/{model}")}}
    definitions = content["application/json"]["schema"].pop("$defs", {})
    content["application/json"]["schema"]["$defs"] = definitions
    return {"requestBody": {"required": True, "content": content}}


@router.get(
    "/profiles/l1/{customer_id}", auth=_l1("read"), summary="What the customer told us", description=f"{_READ} {_PAST}"
)
def get_l1(
    request: HttpRequest, customer_id: str, as_of: str | None = None, version: Number | None = None
) -> HttpResponse:
    return _document(
        selectors.read_l1(caller=_caller(request), customer_id=customer_id, as_of=_instant(as_of), version=version)
    )


@router.get("/profiles/l1/{customer_id}/versions", auth=_l1("read"), summary="Versions of l1", description=_VERSIONS)
def get_l1_versions(
    request: HttpRequest, customer_id: str, limit: Number = 20, before_version: Number | None = None
) -> HttpResponse:
    return _page(
        selectors.versions_l1(
            caller=_caller(request), customer_id=customer_id, limit=limit, before_version=before_version
        )
    )


@router.put(
    "/profiles/l1/{customer_id}", auth=_l1("write"), summary="Replace the customer's own fields",
    description=f"{_WRITE} The assessment and whatever else comes from the core is refused by name (422).",
    openapi_extra=_takes(L1Own),
)  # fmt: skip
def put_l1(request: HttpRequest, customer_id: str, payload: dict[str, Any] = Body(...)) -> HttpResponse:  # noqa: B008
    return _written(
        customer_id,
        services.write_l1(
            caller=_caller(request), customer_id=customer_id, payload=payload, if_version=_if_version(request)
        ),
    )


@router.get(
    "/profiles/l2/{customer_id}/{advisor_id}",
    auth=_l2("read"),
    summary="An advisor's view",
    description=f"{_READ} {_PAST}",
)
def get_l2(
    request: HttpRequest, customer_id: str, advisor_id: str, as_of: str | None = None, version: Number | None = None
) -> HttpResponse:
    return _document(
        selectors.read_l2(
            caller=_caller(request),
            customer_id=customer_id,
            advisor_id=advisor_id,
            as_of=_instant(as_of),
            version=version,
        )
    )


@router.get(
    "/profiles/l2/{customer_id}/{advisor_id}/versions",
    auth=_l2("read"),
    summary="Versions of l2",
    description=_VERSIONS,
)
def get_l2_versions(
    request: HttpRequest, customer_id: str, advisor_id: str, limit: Number = 20, before_version: Number | None = None
) -> HttpResponse:
    return _page(
        selectors.versions_l2(
            caller=_caller(request),
            customer_id=customer_id,
            advisor_id=advisor_id,
            limit=limit,
            before_version=before_version,
        )
    )


@router.put(
    "/profiles/l2/{customer_id}/{advisor_id}", auth=_l2("write"), summary="Replace the advisor's fields",
    description=f"{_WRITE} The asset snapshot is not among them; health and religion are refused.",
    openapi_extra=_takes(L2Own),
)  # fmt: skip
def put_l2(
    request: HttpRequest, customer_id: str, advisor_id: str, payload: dict[str, Any] = Body(...)  # noqa: B008
) -> HttpResponse:  # fmt: skip
    return _written(
        customer_id,
        services.write_l2(
            caller=_caller(request), customer_id=customer_id, advisor_id=advisor_id, payload=payload,
            if_version=_if_version(request),
        ),
    )  # fmt: skip


@router.get(
    "/profiles/l3/{customer_id}", auth=_l3("read"), summary="Risk's view, as far as the reader may see it",
    description=(
        "The customer agent gets the customer's part: `customer_id`, `version`, `assessment_status`, "
        "`assessment_valid_until`, `max_product_risk_level`, `restrictions` (code, text, until), `required_steps`, "
        "`as_of`. The advisor agent gets score, level, and entries of visibility public and advisor; the risk agent "
        "gets all. `version` counts the changes of the reader's part, and its instant is the last one's: of what risk "
        "keeps to itself nothing can be told. The customer's part is always there, with version 0 and as of l1 until "
        f"it has shown a restriction; an advisor's is 404 until it shows something. `ETag` is the version. {_PAST}"
    ),
)  # fmt: skip
def get_l3(
    request: HttpRequest, customer_id: str, as_of: str | None = None, version: Number | None = None
) -> HttpResponse:
    return _document(
        selectors.read_l3(caller=_caller(request), customer_id=customer_id, as_of=_instant(as_of), version=version)
    )


@router.get(
    "/profiles/l3/{customer_id}/versions",
    auth=_l3("read"),
    summary="Versions of l3",
    description=(
        f"{_VERSIONS} Readers other than risk are told of versions that changed something for them, and not by whom."
    ),
)
def get_l3_versions(
    request: HttpRequest, customer_id: str, limit: Number = 20, before_version: Number | None = None
) -> HttpResponse:
    return _page(
        selectors.versions_l3(
            caller=_caller(request), customer_id=customer_id, limit=limit, before_version=before_version
        )
    )


@router.put(
    "/profiles/l3/{customer_id}", auth=_l3("write"), summary="Replace risk's view",
    description=(
        f"{_WRITE} Entries without `visibility` are risk's alone; words that would tip off are refused in all others. "
        "A restriction that is added needs a confirmed alert of the customer (409 NEEDS_CONFIRMED_ALERT)."
    ),
    openapi_extra=_takes(L3Own),
)  # fmt: skip
def put_l3(request: HttpRequest, customer_id: str, payload: dict[str, Any] = Body(...)) -> HttpResponse:  # noqa: B008
    return _written(
        customer_id,
        services.write_l3(
            caller=_caller(request), customer_id=customer_id, payload=payload, if_version=_if_version(request)
        ),
    )


def _caller(request: HttpRequest) -> Caller:
    return caller_of(request)


def _if_version(request: HttpRequest) -> int | None:
    """The version that If-Match or If-None-Match asks for; 0 for "none may be there"."""
    if "If-None-Match" in request.headers:
        if request.headers["If-None-Match"].strip() != "*" or "If-Match" in request.headers:
            raise DomainError("INVALID_REQUEST", "If-None-Match of a write is *, and stands without If-Match")
        return 0
    header = request.headers.get("If-Match")
    if header is None:
        return None
    found = _VERSION.match(header.strip())
    if not found:
        raise DomainError("INVALID_REQUEST", f'If-Match {header[:40]!r} is no ETag of a profile; send one such as "3"')
    return int(found[1])


def _instant(text: str | None) -> datetime | None:
    """Errors: INVALID_REQUEST (422) for what is no instant of RFC 3339."""
    if text is None:
        return None
    try:
        return instant(text)
    except ValueError:
        shown = text[:40]
        raise DomainError(
            "INVALID_REQUEST",
            f"as_of {shown!r} is no instant; send one such as 2026-11-30T08:00:00Z (+ is %2B in an address)",
        ) from None


def _page(page: Page) -> HttpResponse:
    items = [
        {
            "version": entry.version,
            "at": rfc3339(entry.at),
            "visible_at": rfc3339(entry.visible_at) if entry.visible_at else None,
            "author": entry.author or None,
            "agent": entry.agent or None,
            "trace_id": entry.trace_id or None,
            "deleted": entry.deleted,
            "changed": entry.changed,
        }
        for entry in page.items
    ]
    response = HttpResponse(
        canonical_json({"items": items, "next": page.next}), content_type="application/json; charset=utf-8"
    )
    response["Cache-Control"] = "no-store"
    return response


def _document(document: Document) -> HttpResponse:
    response = HttpResponse(canonical_json(document), content_type="application/json; charset=utf-8")
    response["ETag"] = f'"{document["version"]}"'
    response["Cache-Control"] = "no-store"
    return response


def _written(customer_id: str, written: Written) -> HttpResponse:
    body = {"customer_id": customer_id, "version": written.version, "updated_at": rfc3339(written.updated_at)}
    response = HttpResponse(
        canonical_json(body), content_type="application/json; charset=utf-8", status=201 if written.created else 200
    )
    response["ETag"] = f'"{written.version}"'
    return response
