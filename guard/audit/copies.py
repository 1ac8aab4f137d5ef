"""Which of any number of rows say the same, in memory that does not grow with them.

Fingerprints are sorted into 4096 heaps by their first bits, each of which goes to a file of its own when it has grown:
two that are equal lie in the same one. In the end one heap after the other is looked through.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_HEAPS = 4096
_HELD_BYTES = 4096  # of a heap, in memory: 16 MB of all
_ENTRY = struct.Struct(">16sqq")


class Copies:
    """add() each row, then found() once. Disk: 32 bytes a row beyond some 500,000, in a folder that close() removes."""

    def __init__(self) -> None:
        self._heaps: dict[int, bytearray] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, fingerprint: bytes, row: int, seal: int) -> None:
        """fingerprint: 16 bytes. seal: told again by found(); -1 for none."""
        heap = (fingerprint[0] << 4) | (fingerprint[1] >> 4)
        held = self._heaps.setdefault(heap, bytearray())
        held += _ENTRY.pack(fingerprint, row, seal)
        if len(held) >= _HELD_BYTES:
            with self._file(heap).open("ab") as file:
                file.write(held)
            held.clear()

    def found(self) -> Iterator[tuple[int, int, int]]:
        """(the copy, the row of which it is one, the copy's seal); of equal rows the first is no copy."""
        for heap in range(_HEAPS):
            held = bytes(self._heaps.get(heap, b""))
            if self._folder is not None and self._file(heap).exists():
                held += self._file(heap).read_bytes()
            before = (b"", 0)
            for fingerprint, row, seal in sorted(_ENTRY.iter_unpack(held)):
                if fingerprint == before[0]:
                    yield row, before[1], seal
                else:
                    before = (fingerprint, row)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _file(self, heap: int) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="audit-")
        return Path(self._folder.name) / str(heap)
