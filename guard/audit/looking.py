"""A quick look at the chain, for doctor: what verify_audit would find first, without reading the rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from guard.audit import memory, sealkeys
from guard.audit.models import AuditLog, Decision, EventType
from guard.audit.reading import Standing, marks, seals_down, standing_of

_MOST_FAULTS = 100


@dataclass
class Look:
    """faults: sentences. seals: how many follow on each other. whole: down to the beginning."""

    faults: list[str] = field(default_factory=list)
    seals: int = 0
    whole: bool = False


def look_at_chain(*, seconds: float = 1.0) -> Look:
    """Walks down from the newest seal: each is ours, and named by the next. What this machine remembers must be there,
    and the last verification must not have found anything. Errors: DatabaseError."""
    look = Look()
    until = time.monotonic() + seconds
    for one in memory.remembered_anywhere():
        if marks([one.number]).get(one.number) != one.mac:
            look.faults.append(f"seal {one.number}, which is remembered, is not there: the chain was cut or put back")
    keys = sealkeys.ring()
    above: dict[str, Any] | None = None
    for seal in seals_down():
        standing = standing_of(seal, keys)
        if standing is Standing.JUNK:
            look.faults.append(f"seal {seal['number']} is not as it was made, or none of ours")
        else:
            if above is not None and above["previous_mac"] != seal["mac"]:
                look.faults.append(f"seal {above['number']} does not follow on seal {seal['number']}")
            above = seal
            look.seals += 1
        if len(look.faults) >= _MOST_FAULTS or time.monotonic() > until:
            break
    else:
        look.whole = True
        if above is None or above["previous_mac"]:
            look.faults.append("the seal with which the chain began is not there")
    _last_verification(look)
    return look


def _last_verification(look: Look) -> None:
    rows = AuditLog.objects.filter(tenant="default", event_type=EventType.AUDIT_VERIFY, actor_id="verify_audit")
    last = rows.order_by("-at").values_list("decision", "code").first()
    if last == (Decision.FAILED, "BROKEN"):
        look.faults.append("the last verification found the audit log broken")
