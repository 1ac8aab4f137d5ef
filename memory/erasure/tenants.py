"""What each tenant has, room by room."""

from __future__ import annotations

from memory.erasure.registry import Counts, parts

COLUMNS = (
    "sessions", "open_in_redis", "messages", "bytes", "queued", "dead_letters", "profiles_l1", "profiles_l2",
    "profiles_l3", "erased_sessions",
)  # fmt: skip


def count_tenants() -> dict[str, Counts]:
    """Tenant -> what it has, by name; a number for every column. Later rooms add columns.

    Cost: 6 queries, each over a table, and a walk over the names in Redis. Errors: RedisUnavailable, DatabaseError.
    """
    counted: dict[str, Counts] = {}
    for part in parts():
        for tenant, row in (part.tenants() if part.tenants else {}).items():
            counted.setdefault(tenant, dict.fromkeys(COLUMNS, 0)).update(row)
    return dict(sorted(counted.items()))
