"""Whether the audit log can take the next row: what stands against it, in words, before a decision meets it."""

from __future__ import annotations

from django.db import connection

from guard.audit.triggers import TABLE

LAST_ID = 2**63 - 1
# From here on somebody has put a row there by hand: a million rows a second would need 146 000 years.
_NEAR_THE_END = 2**62


def obstacles() -> list[str]:
    """Sentences; empty is as it should be. 3 queries, by index or of the schema. Errors: DatabaseError."""
    found = []
    given = _ids_given()
    if given >= LAST_ID:
        found.append(
            f"its ids are used up: a row with the id {LAST_ID}, the last that there is, was put in past the product; "
            "no decision can be recorded, so none is taken"
        )
    elif given >= _NEAR_THE_END:
        found.append(f"a row with the id {given} was put in past the product: {LAST_ID - given} ids are left")
    if names := _foreign_triggers():
        found.append(f"triggers that are not the product's act on what is inserted: {', '.join(names)}")
    return found


def _ids_given() -> int:
    """The highest id that was ever given, also to a row that was rolled back."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT MAX(id) FROM {TABLE}")  # noqa: S608 - a constant
        highest = int(cursor.fetchone()[0] or 0)
        if connection.vendor == "sqlite":
            cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [TABLE])
            row = cursor.fetchone()
            return max(highest, int(row[0] or 0) if row else 0)
        cursor.execute(
            "SELECT auto_increment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
            [TABLE],
        )
        row = cursor.fetchone()
    following = int(row[0]) if row and row[0] is not None else 0
    return max(highest, following - 1)


def _foreign_triggers() -> list[str]:
    """Those on INSERT: on MariaDB and MySQL the product has none there. Without the TRIGGER right MySQL shows none."""
    if connection.vendor == "sqlite":
        query = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s "
            "AND name NOT IN ('audit_log_refuse_update', 'audit_log_refuse_delete', 'audit_log_refuse_replace')"
        )
    else:
        query = (
            "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = DATABASE() "
            "AND event_object_table = %s AND event_manipulation = 'INSERT'"
        )
    with connection.cursor() as cursor:
        cursor.execute(query, [TABLE])
        return sorted(str(name) for (name,) in cursor.fetchall())
