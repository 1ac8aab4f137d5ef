"""What an erasure leaves, and on what ground: printed on every receipt."""

from __future__ import annotations

from guard.audit.selectors import rows_in_clear
from memory.erasure.blocks import spent
from memory.erasure.registry import Kept, Subject, register_kept

EVIDENCE = "statutory evidence, kept for its legal period"


def register_own() -> None:
    for name, ground in {
        "audit_log": f"{EVIDENCE}; the customer under a pseudonym whose key is destroyed",
        "agent_session": "ids of erased sessions, without a person: they refuse late writers and are not used again",
        "customer_tombstone": "a keyed hash of the customer, which refuses whoever writes for them later",
        "legal_hold": "released holds, under a pseudonym",
        "backups": "backups, the database's binary log and Redis's append-only file, until they are rotated",
    }.items():
        register_kept(Kept(name, ground))
    register_kept(
        Kept(
            "budget_ledger",
            f"{EVIDENCE}; what calls cost, which takes no change and names who made them",
            rows=spent,
            only_if_any=True,
        )
    )
    register_kept(
        Kept(
            "audit_log_in_clear",
            f"{EVIDENCE}; rows from before there were pseudonyms, which name the customer and take no change",
            rows=_in_clear,
            only_if_any=True,
        )
    )


def _in_clear(subject: Subject) -> int:
    return rows_in_clear(subject.tenant, subject.customer_id)
