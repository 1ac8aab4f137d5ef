"""Expressions whose time is linear in the text, whatever is sent: RE2 over the UTF-8 of a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2

from guard.inputs.normalising import View


def _options(*, ignore_case: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.never_capture = False
    options.max_mem = 64 << 20  # a range of Chinese characters counted to eight is a large automaton
    return options


MARGIN = 16


class Expression:
    """One expression. No look-around and no back-references: RE2 has none, which is why it is linear."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        try:
            self._compiled: Any = re2.compile(pattern.encode(), _options(ignore_case=ignore_case))
        except re2.error as exc:
            raise ValueError(f"no expression of RE2: {pattern!r}: {exc}") from None
        self.pattern = pattern

    def find(self, view: View, group: int | str = 0) -> Iterator[tuple[int, int]]:
        """Where a group of each match stands in the view, end exclusive, matches that do not overlap."""
        number = group if isinstance(group, int) else self._compiled.groupindex[group.encode()]
        for match in self._compiled.finditer(view.utf8):
            start, end = match.span(number)
            if start >= 0:
                yield view.index_of_byte(start), view.index_of_byte(end)

    def find_within(self, view: View, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Matches in bytes `[start, end)` of the view, as its characters; none that is empty.

        What begins in the first bytes of a later stretch is left out: there a line or a word may only seem to begin,
        and the stretch before has it.
        """
        for match in self._compiled.finditer(view.utf8, start, end):
            first, last = match.span()
            if first < last and (start == 0 or first >= start + MARGIN):
                yield view.index_of_byte(first), view.index_of_byte(last)

    @property
    def matches_nothing(self) -> bool:
        """Whether the empty text is a match."""
        return self._compiled.search(b"") is not None

    def first(self, view: View, start: int = 0) -> int | None:
        """Where, in bytes of the view, the first match from `start` on begins."""
        match = self._compiled.search(view.utf8, start)
        return None if match is None else int(match.start())
