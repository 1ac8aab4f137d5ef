"""What the terminal shows: each child's lines under its name, and a framed box when all is ready."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TextIO

_COLOURS = {"redis": 35, "web": 32, "worker": 36, "drain": 34, "publish": 33, "notify": 31, "beat": 90, "up": 1}
_WIDTH = 8


class Terminal:
    """A writer that outlives its reader: a closed terminal or pipe stops no process."""

    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self._stream = stream
        self._colour = colour

    def line(self, name: str, text: str) -> None:
        label = f"{name:<{_WIDTH}}|"
        if self._colour:
            label = f"\x1b[{_COLOURS.get(name, 0)}m{label}\x1b[0m"
        self.write(f"{label} {text}")

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def box(self, lines: Sequence[str]) -> None:
        width = max(len(line) for line in lines)
        edge = "─" * (width + 2)
        self.write("\n".join([f"╭{edge}╮", *(f"│ {line:<{width}} │" for line in lines), f"╰{edge}╯"]))
