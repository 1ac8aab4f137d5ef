"""How the chain begins: once in an installation's life, by a migration and by nobody else.

Rows that are older than the rows' own macs have nothing by which to know them, so they are adopted: put under the first
seals as they are. Whoever could have that done again could change them, and the sealer never does it: where it finds no
seal at all, somebody has removed them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from config.base.clock import now
from guard.audit import memory, sealkeys
from guard.audit.canonical import COLUMNS, Row, new_seal, row_of, seal_bytes

logger = logging.getLogger(__name__)

PAGE = 5000  # rows


def begin(connection: BaseDatabaseWrapper, seals: Any, *, columns: Sequence[str] = COLUMNS, page: int = PAGE) -> int:
    """Makes seal 0, and further ones for all rows from the first on that have no mac; returns how many rows.

    seals: the model, as the migration has it. Nothing is done where there are seals, and nothing is adopted where this
    machine or the last anchor remembers a chain: then the sealer shows the hole.
    Cost: reads and seals the rows without a mac once, about 20,000 a second.
    """
    if seals.objects.exists():
        return 0
    if memory.remembered_anywhere():
        logger.error("audit seals: there was a chain, and no seal is left of it: nothing is adopted")
        return 0
    number, head_id, previous, adopted = 0, 0, "", 0
    while True:
        rows = _without_mac(connection, columns, head_id, page)
        if not rows and number:
            return adopted
        adopted += len(rows)
        fields = new_seal(
            number=number,
            at=now(),
            from_id=head_id,
            head_id=rows[-1].id if rows else head_id,
            rows=rows,
            total=adopted,
            adopted=rows[-1].id if rows else 0,
            previous_mac=previous,
        )
        previous = sealkeys.sign(sealkeys.SEAL, seal_bytes(fields))[1]
        seals.objects.create(**fields, mac=previous)
        number, head_id = number + 1, fields["head_id"]
        if len(rows) < page:
            return adopted


def _without_mac(connection: BaseDatabaseWrapper, columns: Sequence[str], after: int, page: int) -> list[Row]:
    with connection.cursor() as cursor:
        query = f"SELECT {', '.join(columns)} FROM audit_log WHERE id > %s ORDER BY id LIMIT %s"  # noqa: S608
        cursor.execute(query, [after, page])
        rows = [row_of(values) for values in cursor.fetchall()]
    first = next((place for place, row in enumerate(rows) if row.mac), len(rows))
    return rows[:first]
