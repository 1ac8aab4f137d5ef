"""Sections as a PDF: with its font in it, and the same bytes for the same words at the same instant."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import pylopdf_fonts_zh_cn as fonts
from fontTools.ttLib import TTFont
from fpdf import FPDF
from fpdf.enums import XPos, YPos
from fpdf.fonts import FontFace

from risk.console.casefile.content import Section

# They tell at length which characters a text has.
for _name in ("fontTools", "fpdf"):
    logging.getLogger(_name).setLevel(logging.ERROR)

FONT = "NotoSansSC"
_BOX = "□"  # in the place of a character that the font has not
_EM, _PADDING = 7.5 * 25.4 / 72, 0.8  # mm, of tables
_MOST_LINES = 26  # of a cell on one page, which has room for 66: words that are not broken leave up to half empty
_NEAR = 40  # characters
_INK, _QUIET, _LINE, _FILL = (24, 28, 36), (96, 104, 118), (205, 210, 218), (242, 244, 247)


@cache
def _drawn() -> frozenset[int]:
    with TTFont(fonts.sans_path(), lazy=True) as font:
        return frozenset(font.getBestCmap())


def shown(text: str) -> str:
    """What can be drawn of a text. Marks that turn its direction or are not seen go: a paper shows what it says."""
    kept = []
    for char in unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\t", " "):
        if char == "\n":
            kept.append(char)
        elif unicodedata.category(char)[0] != "C":
            kept.append(char if ord(char) in _drawn() else _BOX)
    return "".join(kept)


class _Paper(FPDF):
    def __init__(self, *, title: str, foot: str, at: datetime) -> None:
        super().__init__(format="A4")
        self._foot = shown(foot)
        self.set_margins(15, 15, 15)
        self.set_auto_page_break(True, margin=18)
        self.set_creation_date(at)
        self.set_title(title)
        self.set_producer("Xinghuo")
        self.add_font(FONT, "", str(fonts.sans_path()))
        self.set_font(FONT, size=9)
        self.set_text_color(*_INK)
        self.set_draw_color(*_LINE)

    def footer(self) -> None:
        self.set_y(-13)
        self.set_font(FONT, size=7)
        self.set_text_color(*_QUIET)
        self.cell(0, 5, f"{self._foot} · {self.page_no()}/{{nb}}", align="C")
        self.set_text_color(*_INK)


def pdf_of(*, title: str, intro: Sequence[str], foot: str, sections: Sequence[Section], at: datetime) -> bytes:
    """Cost: half a second and some 60 MB for the font, and about a second for each hundred rows."""
    paper = _Paper(title=shown(title), foot=foot, at=at)
    paper.add_page()
    _say(paper, title, size=16, height=8)
    for line in intro:
        _say(paper, line, size=8, height=4.4, ink=_QUIET)
    for section in sections:
        _section(paper, section)
    return bytes(paper.output())


def _section(paper: _Paper, section: Section) -> None:
    paper.ln(3)
    if paper.will_page_break(20):
        paper.add_page()
    _say(paper, section.title, size=11, height=6.5)
    paper.line(paper.l_margin, paper.get_y(), paper.w - paper.r_margin, paper.get_y())
    paper.ln(1.5)
    if section.facts:
        _table(paper, (), section.facts, (38, 142))
        paper.ln(1)
    if section.rows:
        _table(paper, section.heads, section.rows, section.widths)
    for words in section.words:
        _say(paper, words, size=8.5, height=4.8)
        paper.ln(1.5)
    if section.left:
        _say(paper, section.left, size=8, height=4.6, ink=_QUIET)


def _say(paper: _Paper, text: str, *, size: float, height: float, ink: tuple[int, int, int] = _INK) -> None:
    paper.set_font(FONT, size=size)
    paper.set_text_color(*ink)
    paper.multi_cell(0, height, shown(text), align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    paper.set_text_color(*_INK)


def _table(paper: _Paper, heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    paper.set_font(FONT, size=7.5)
    options: dict[str, Any] = {
        "col_widths": tuple(widths), "text_align": "LEFT", "line_height": 4, "padding": _PADDING, "borders_layout":
        "HORIZONTAL_LINES", "first_row_as_headings": bool(heads), "wrapmode": "WORD",
        "headings_style": FontFace(fill_color=_FILL, emphasis=""),
    }  # fmt: skip
    with paper.table(**options) as table:
        if heads:
            table.row([shown(str(value)) for value in heads])
        room = [width * paper.epw / sum(widths) - 2 * _PADDING for width in widths]
        for row in rows:
            cells = [_parts(shown(str(value)), int(at // _EM)) for value, at in zip(row, room, strict=True)]
            for number in range(max(len(parts) for parts in cells)):
                table.row([parts[number] if number < len(parts) else "" for parts in cells])


def _parts(text: str, in_line: int) -> list[str]:
    """A cell in pieces that fit on a page each, however its words are broken: a row that is higher than a page cannot
    be drawn. in_line: of the widest characters."""
    parts, start, lines, place, blank = [], 0, 1, 0, 0
    for at, char in enumerate(text):
        if char.isspace():
            blank = at
        if char == "\n":
            lines, place = lines + 1, 0
        elif (place := place + 1) > max(in_line, 1):
            lines, place = lines + 1, 1
        if lines > _MOST_LINES:
            # Between words where one ends nearby.
            cut = blank + 1 if at - blank < _NEAR and blank >= start else at
            parts.append(text[start:cut])
            start, lines, place = cut, 1, at - cut + 1
    return [*parts, text[start:]]
