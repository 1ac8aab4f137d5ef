"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TOLD = 100  # findings that are kept in words; all are counted


@dataclass(frozen=True)
class Finding:
    """row, seal: where (None: of no single one). what: a sentence."""

    what: str
    row: int | None = None
    seal: int | None = None

    def __str__(self) -> str:
        where = [f"row {self.row}"] if self.row is not None else []
        where += [f"seal {self.seal}"] if self.seal is not None else []
        return f"{', '.join(where)}: {self.what}" if where else self.what


@dataclass
class Report:
    """rows: compared with their seals. unsealed: newer than the head, or late and not taken yet. unchecked: of seals
    that are broken or gone, so that nobody can say. adopted: of `rows`, those without a mac of their own, from before
    there were any. anchored: the newest seal that an anchor confirms (None: none). remembered: the seal that this
    machine remembers as the newest and that is there (None: it remembers none, or was not asked)."""

    rows: int = 0
    seals: int = 0
    unsealed: int = 0
    unchecked: int = 0
    adopted: int = 0
    remembered: int | None = None
    anchored: int | None = None
    anchors: int = 0
    rows_after_anchor: int = 0
    head: int = 0
    head_mac: str = ""
    total: int = 0
    found: int = 0
    findings: list[Finding] = field(default_factory=list)
    first_row: int | None = None
    unknown_keys: set[str] = field(default_factory=set)
    anchor_fault: str = ""

    def tell(self, what: str, *, row: int | None = None, seal: int | None = None) -> None:
        self.found += 1
        if row is not None and (self.first_row is None or row < self.first_row):
            self.first_row = row
        if len(self.findings) < TOLD:
            self.findings.append(Finding(what, row, seal))

    @property
    def exit_code(self) -> int:
        """0 whole and anchored, 1 broken, 2 not to be told (a key is missing), 3 whole, tail and rollback unchecked."""
        if self.found:
            return 1
        if self.unknown_keys or self.anchor_fault:
            return 2
        return 3 if self.anchored is None else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "result": {0: "whole", 1: "broken", 2: "unknown", 3: "whole_unanchored"}[self.exit_code],
            "rows": self.rows,
            "seals": self.seals,
            "unsealed": self.unsealed,
            "unchecked": self.unchecked,
            "adopted": self.adopted,
            "remembered": self.remembered,
            "head": self.head,
            "head_mac": self.head_mac,
            "anchored": self.anchored,
            "rows_after_anchor": self.rows_after_anchor,
            "found": self.found,
            "first_row": self.first_row,
            "findings": [{"row": one.row, "seal": one.seal, "what": one.what} for one in self.findings],
            "unknown_keys": sorted(self.unknown_keys),
            "anchor_fault": self.anchor_fault,
        }
