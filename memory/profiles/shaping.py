"""What is stored, as its schema has it: what no schema knows stays behind, whoever has written it there.

The services write what the schemas allow; the ORM, fixtures and people at the database write whatever they like. On
the way into the cache and into a view every value is looked at once more: an unknown name goes, an entry or a field
that is malformed goes (and is told in the log, without its content), the rest stays as it was spelled.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from memory.profiles.schemas import Id, Instant, L1Core, L1Own, L2Own, L3Shared, Strict

logger = logging.getLogger(__name__)

Json = dict[str, Any]


def shaped(schema: type[BaseModel], stored: Any) -> Json:
    """The fields of `stored` that the schema knows and would take, as they are spelled. Cost: some 20 microseconds."""
    if not isinstance(stored, Mapping):
        _told(schema, "the fields")
        return {}
    known = {name: value for name, value in stored.items() if name in schema.model_fields and value is not None}
    whole = _taken(schema, known)
    if whole is not None:
        return whole
    kept: Json = {}
    for name, value in known.items():
        one = _taken(schema, {name: value})
        if one is None and isinstance(value, list):
            entries = [taken[name][0] for entry in value if (taken := _taken(schema, {name: [entry]}))]
            one = _taken(schema, {name: entries})
        if one is None or (isinstance(value, list) and len(one[name]) != len(value)):
            _told(schema, name)
        kept |= one or {}
    return kept


def _taken(schema: type[BaseModel], fields: Json) -> Json | None:
    """None where the schema would not take them."""
    try:
        return schema.model_validate(fields, extra="ignore").model_dump(mode="json", exclude_unset=True)
    except (ValidationError, RecursionError):
        return None


def _told(schema: type[BaseModel], name: str) -> None:
    logger.warning("a stored profile has something else than a %s in %s: left out", schema.__name__, name)


# --- documents of the cache -----------------------------------------------------------------------------------------


class _Head(BaseModel):
    customer_id: Id
    version: Annotated[int, Field(strict=True, ge=1)]
    updated_at: Instant


class _Customers(BaseModel):
    """What l3 has for the customer's part: 0 and null where that is not there."""

    customer_version: Annotated[int, Field(strict=True, ge=0)]
    customer_as_of: Instant | None


class _Own(BaseModel):
    """What l2 has beside its fields."""

    advisor_id: Id
    asset_snapshot: Json | None
    snapshot_at: Instant | None
    core_as_of: Instant | None


def _only_shown(entries: Any) -> Any:
    if any(entry.visibility == "risk" for entry in entries or ()):
        raise ValueError("has an entry that is risk's alone")
    return entries


@lru_cache
def _document_of(layer: str) -> TypeAdapter[Any]:
    layers: dict[str, list[type[BaseModel]]] = {
        "l1": [L1Core, L1Own, _Head],
        "l2": [L2Own, _Own, _Head],
        "l3": [L3Shared, _Customers, _Head],
    }
    parts = layers[layer]
    fields: Json = {}
    for part in parts:
        for name, field in part.model_fields.items():
            fields[name] = (field.rebuild_annotation(), field.default if not field.is_required() else ...)
    if layer == "l3":
        for name in ("flags", "restrictions"):
            kind, default = fields[name]
            fields[name] = (Annotated[kind, AfterValidator(_only_shown)], default)
    config: ConfigDict = Strict.model_config
    return TypeAdapter(create_model(f"Cached{layer.upper()}", __config__=config, **fields))


_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def kept_json(text: str) -> Any:
    """What we once wrote into a cache with `canonical_json`, and can write into an answer again.

    Errors: ValueError for what is no JSON: NaN too, and halves of surrogate pairs, which we never write as escapes;
    RecursionError.
    """
    if _HALF_A_PAIR.search(text):
        raise ValueError("holds an escape of a surrogate")
    return json.loads(text, parse_constant=_no_constant)


def is_document(layer: str, document: Any) -> bool:
    """Whether this is what we would keep of a profile of the layer: others write to that server too."""
    try:
        _document_of(layer).validate_python(document)
    except (ValidationError, RecursionError):
        return False
    return True
