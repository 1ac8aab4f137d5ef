"""The profiles that are there get their present version as the first that is kept.

What it was before nobody knows: an as-of read of an earlier instant says so. Each batch is a transaction, and a run
that was interrupted is gone on with. The documents are written out here as they were at this point of the history, for
the code that makes them changes.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC
from typing import Any

from django.db import migrations, transaction

BATCH = 500
INTERNAL = ("aml_rating", "reasons", "open_alerts")


def rfc3339(moment: Any) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def instant(moment: Any) -> str | None:
    return rfc3339(moment) if moment else None


def l1(row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    columns = {"payload": row.payload, "core": row.core, "core_synced_at": instant(row.core_synced_at)}
    return columns, {**row.core, **row.payload}


def l2(row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    system = {
        "asset_snapshot": row.asset_snapshot,
        "snapshot_at": instant(row.snapshot_at),
        "core_as_of": instant(row.core_as_of),
    }
    return {"payload": row.payload, **system}, {**row.payload, "advisor_id": row.advisor_id, **system}


def l3(row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    shared = {name: value for name, value in row.payload.items() if name not in INTERNAL}
    for name in ("flags", "restrictions"):
        if name in shared:
            shared[name] = [entry for entry in shared[name] if entry.get("visibility") in ("public", "advisor")]
    return {"payload": row.payload, "internal": row.internal}, shared


def first_versions(apps: Any, schema_editor: Any) -> None:
    alias = schema_editor.connection.alias
    versions = apps.get_model("memory", "ProfileVersion").objects.using(alias)
    for layer, name, parts in (
        ("l1", "CustomerProfileL1", l1),
        ("l2", "CustomerProfileL2", l2),
        ("l3", "CustomerProfileL3", l3),
    ):
        profiles = apps.get_model("memory", name).objects.using(alias).order_by("pk")
        after = 0
        while rows := list(profiles.filter(pk__gt=after)[:BATCH]):
            after = rows[-1].pk
            with transaction.atomic(using=alias):
                versions.bulk_create([_version(versions.model, layer, row, parts) for row in rows],
                                     ignore_conflicts=True)  # fmt: skip


def _version(model: Any, layer: str, row: Any, parts: Any) -> Any:
    columns, document = parts(row)
    head = {"customer_id": row.customer_id, "version": row.version, "updated_at": rfc3339(row.updated_at)}
    text = canonical({**document, **head})
    return model(
        tenant=row.tenant,
        layer=layer,
        customer_id=row.customer_id,
        advisor_id=getattr(row, "advisor_id", ""),
        version=row.version,
        at=row.updated_at,
        visible_at=row.updated_at,
        author=row.updated_by,
        agent="",
        trace_id=row.trace_id,
        schema_version=row.payload.get("schema_version", 1),
        columns={**columns, "created_at": rfc3339(row.created_at)},
        document_hash=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )


class Migration(migrations.Migration):
    dependencies = [("memory", "0006_profile_versions")]

    operations = [migrations.RunPython(first_versions, migrations.RunPython.noop)]
