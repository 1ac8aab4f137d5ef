"""What the tests of the seals share: rows, tampering past the triggers, late transactions."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import connection

from guard.audit import links, memory, triggers
from guard.audit.models import AuditLog, AuditSeal
from guard.audit.sealing import Sealed, forget_chain, seal_waiting
from guard.audit.services import record


def make_row(**fields: Any) -> AuditLog:
    values: dict[str, Any] = {
        "tenant": "default", "event_type": "authz", "decision": "forbidden", "actor_type": "agent", "actor_id": "wei",
        "code": "NOT_OWNER",
    }  # fmt: skip
    return record(**(values | fields))


def make_rows(many: int) -> list[int]:
    return [make_row(input_summary={"code": "NOT_OWNER", "target": f"t{number}"}).pk for number in range(many)]


def make_apart(many: int) -> list[int]:
    """Rows that processes of their own wrote: none of them says anything of another."""
    ids = []
    for number in range(many):
        links.forget()
        ids += [make_row(input_summary={"code": "NOT_OWNER", "target": f"t{number}"}).pk]
    links.forget()
    return ids


def forget_head() -> None:
    """Nobody remembers where the chain ended: another machine, and a sealer that was started anew."""
    memory.path().unlink(missing_ok=True)
    forget_chain()


def seals() -> Any:
    """Without the one that the migration made."""
    return AuditSeal.objects.filter(number__gt=0)


def seal() -> Sealed:
    return seal_waiting(seconds=30)


def make_sealed(*groups: int) -> list[int]:
    """Rows under one seal a group; their ids."""
    ids: list[int] = []
    for many in groups:
        ids += make_rows(many)
        seal()
    return ids


@contextmanager
def without_triggers() -> Iterator[Any]:
    """A cursor of somebody who owns the database."""
    triggers.drop(connection)
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        triggers.install(connection)


@contextmanager
def database_away() -> Iterator[None]:
    """Nothing answers where the database was: a new connection is refused."""
    own = connection.settings_dict.copy()
    connection.close()
    connection.settings_dict.update(
        {"PORT": "1", "HOST": "127.0.0.1"} if connection.vendor == "mysql" else {"NAME": "/proc/nowhere/db"}
    )
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update({name: own[name] for name in ("PORT", "HOST", "NAME")})


def tamper(*statements: str) -> None:
    with without_triggers() as cursor:
        for statement in statements:
            cursor.execute(statement)


def verify(*, anchor: Path | None = None, export: Path | None = None, **more: Any) -> dict[str, Any]:
    """What verify_audit --json says, with `exit`."""
    out, code = io.StringIO(), 0
    try:
        call_command("verify_audit", json=True, anchor=anchor, export=export, stdout=out, stderr=io.StringIO(), **more)
    except SystemExit as left:
        code = int(left.code or 0)
    return {**json.loads(out.getvalue().splitlines()[-1]), "exit": code}


def anchor(path: Path) -> None:
    call_command("audit_anchor", write=path, stdout=io.StringIO())


def first(report: dict[str, Any]) -> tuple[Any, Any]:
    """Row and seal of the first finding."""
    return (report["findings"][0]["row"], report["findings"][0]["seal"])


def dump() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """An older copy of both tables."""
    return list(AuditLog.objects.order_by("pk").values()), list(AuditSeal.objects.order_by("pk").values())


def put_back(copy: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    with without_triggers() as cursor:
        cursor.execute("DELETE FROM audit_log")
        cursor.execute("DELETE FROM audit_seal")
        AuditLog.objects.bulk_create([AuditLog(**values) for values in copy[0]])
        AuditSeal.objects.bulk_create([AuditSeal(**values) for values in copy[1]])
    forget_chain()
