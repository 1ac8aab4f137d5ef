"""What is hidden in a text as code: base64, hex, escapes, tag characters. Decoded, and decoded again.

Each level of code makes one layer a text may be inspected in. A layer knows where in the text as it was sent each of
its pieces stood. Work is linear: what is decoded is shorter than its code, levels are bounded, and so is their sum.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import numpy as np
import numpy.typing as npt

from guard.inputs.normalising.view import View, codes_of, folded, lowered
from guard.inputs.normalising.views import joined

MAX_DEPTH = 3
MIN_CODED = 16  # characters of base64 or hex
# All layers together may hold as many times the text, and that many more characters.
MAX_SHARE, MAX_SPARE = 2, 4096


class Piece(NamedTuple):
    """`[start, end)` of the layer it was found in, and what it says."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Layer:
    """kinds: how it was coded, outermost first; () for the text itself. view: folded, in the case it was written.

    piece_at, piece_start, piece_end: for each piece where it begins in `text` and where its code stands in `outer`.
    """

    text: str
    view: View
    kinds: tuple[str, ...] = ()
    outer: Layer | None = None
    piece_at: npt.NDArray[np.int64] | None = None
    piece_start: npt.NDArray[np.int64] | None = None
    piece_end: npt.NDArray[np.int64] | None = None

    @cached_property
    def plain(self) -> View:
        """In small letters: several look at it."""
        return lowered(self.view)

    @cached_property
    def together(self) -> View:
        """In small letters, letters that were spaced out joined."""
        return joined(self.plain)

    def in_original(self, start: int, end: int) -> tuple[int, int]:
        """A stretch of `text` as one of the text that was sent: of a coded piece, the whole of its code."""
        if self.outer is None or self.piece_at is None or self.piece_start is None or self.piece_end is None:
            return start, end
        first = int(np.searchsorted(self.piece_at, start, side="right")) - 1
        last = int(np.searchsorted(self.piece_at, max(start, end - 1), side="right")) - 1
        return self.outer.in_original(int(self.piece_start[max(first, 0)]), int(self.piece_end[max(last, 0)]))


@dataclass(frozen=True)
class Layers:
    """exhausted: there was more to decode than the bound allows, so that not all of the text was seen."""

    layers: tuple[Layer, ...]
    exhausted: bool


def layers_of(text: str) -> Layers:
    """The text and everything that is coded in it, outermost first."""
    layers = [Layer(text, folded(text))]
    room = MAX_SHARE * len(text) + MAX_SPARE
    level = layers[:]
    for _ in range(MAX_DEPTH):
        deeper: list[Layer] = []
        for layer in level:
            for kind, pieces in _found(layer):
                room -= sum(len(piece.text) + 1 for piece in pieces)
                if room < 0:
                    return Layers(tuple(layers), exhausted=True)
                deeper.append(_layer(layer, kind, pieces))
        layers += deeper
        level = deeper
    return Layers(tuple(layers), exhausted=False)


def _layer(outer: Layer, kind: str, pieces: list[Piece]) -> Layer:
    text = "\n".join(piece.text for piece in pieces)
    lengths = np.array([len(piece.text) + 1 for piece in pieces], dtype=np.int64)
    return Layer(
        text=text,
        view=folded(text),
        kinds=(*outer.kinds, kind),
        outer=outer,
        piece_at=np.cumsum(lengths) - lengths,
        piece_start=np.array([piece.start for piece in pieces], dtype=np.int64),
        piece_end=np.array([piece.end for piece in pieces], dtype=np.int64),
    )


def _found(layer: Layer) -> Iterator[tuple[str, list[Piece]]]:
    """Each kind of code in a layer with its pieces, whose places are those of the layer's text."""
    hidden = list(_hidden(layer.text))
    if hidden:
        yield "hidden", hidden
    for kind, find in _FINDERS.items():
        pieces = [Piece(*layer.view.span(start, end), text) for start, end, text in find(layer.view.text)]
        if pieces:
            yield kind, pieces


# --- characters that nobody sees ---------------------------------------------------------------------------------

_TAGS = (0xE0020, 0xE007F)
_SELECTORS = (0xFE00, 0xFE10)
_MORE_SELECTORS = (0xE0100, 0xE01F0)
_WIDTHLESS = {0x200B: "0", 0x200C: "1", 0x200D: "1", 0x2060: "1", 0xFEFF: "1"}
_MIN_HIDDEN = 4


def _hidden(text: str) -> Iterator[Piece]:
    """ASCII in tag characters, bytes in variation selectors, bits in characters without width."""
    if text.isascii():
        return
    codes = codes_of(text)
    tags = (codes >= _TAGS[0]) & (codes < _TAGS[1])
    for start, end in _runs(tags):
        yield Piece(start, end, "".join(chr(code - 0xE0000) for code in codes[start:end].tolist()))
    selectors = ((codes >= _SELECTORS[0]) & (codes < _SELECTORS[1])) | (
        (codes >= _MORE_SELECTORS[0]) & (codes < _MORE_SELECTORS[1])
    )
    for start, end in _runs(selectors):
        data = bytes(
            code - _SELECTORS[0] if code < _SELECTORS[1] else code - _MORE_SELECTORS[0] + 16
            for code in codes[start:end].tolist()
        )
        for stretch in _readable(data):
            yield Piece(start, end, stretch)
    for start, end in _runs(np.isin(codes, list(_WIDTHLESS)), least=8 * _MIN_HIDDEN):
        bits = "".join(_WIDTHLESS[code] for code in codes[start:end].tolist())
        for flipped in (bits, bits.translate({48: "1", 49: "0"})):
            data = (
                int(flipped[: len(flipped) // 8 * 8], 2).to_bytes(len(flipped) // 8) if len(flipped) <= 1 << 13 else b""
            )
            for stretch in _readable(data):
                yield Piece(start, end, stretch)


def _runs(mask: npt.NDArray[np.bool_], least: int = _MIN_HIDDEN) -> Iterator[tuple[int, int]]:
    if not mask.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if end - start >= least:
            yield start, end


# --- bytes that say something -----------------------------------------------------------------------------------

# Eight bytes or more of ASCII or of Chinese in UTF-8 in a row: what is left of random bytes is next to nothing.
_STRETCH = re.compile(rb"(?:[\t\n\r\x20-\x7e]|[\xe3-\xe9\xef][\x80-\xbf]{2}|[\xc2-\xdf][\x80-\xbf]){6,}")
_LETTER = re.compile(r"[^\W_]")
_COMMON = re.compile(r"[\t\n\r\x20-\x7e\u3001-\u3011\u4e00-\u9fa5\uff01-\uff5e]")


def _readable(data: bytes) -> list[str]:
    """The stretches of bytes that are words of people: ASCII, UTF-8, GB 2312 or UTF-16, half of them letters."""
    if len(data) >= 8 and data[1::2].count(0) * 4 > len(data):
        data = data.decode("utf-16-le", "ignore").encode("utf-8", "ignore")
    found = []
    for match in _STRETCH.finditer(data):
        text = match[0].decode("utf-8", "ignore")
        if len(_LETTER.findall(text)) * 2 >= len(text):
            found.append(text)
    covered = sum(len(text.encode()) for text in found)
    for coding in ("gb2312", "utf-16-le") if len(data) >= 6 and covered * 2 < len(data) else ():
        try:
            text = data.decode(coding)
        except UnicodeDecodeError:
            continue
        if len(_COMMON.findall(text)) * 10 >= len(text) * 9 and len(_LETTER.findall(text)) * 2 >= len(text):
            return [text]
    return found


Finder = Callable[[str], Iterator[tuple[int, int, str]]]

_BASE64 = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{MIN_CODED},}}(?: ?\n ?[A-Za-z0-9+/_-]{{4,}})*={{0,2}}")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_NOT_BASE64 = b"\n ="


def _base64(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _BASE64.finditer(text):
        run = match[0].encode("ascii").translate(_URL_SAFE, _NOT_BASE64)
        best: list[str] = []
        # Letters before it move the code out of step; the right step is the one that says most.
        for step in range(4):
            coded = run[step:]
            coded = coded[: len(coded) - 1] if len(coded) % 4 == 1 else coded
            said = _readable(base64.b64decode(coded + b"=" * (-len(coded) % 4)))
            if sum(map(len, said)) > sum(map(len, best)):
                best = said
            if step == 0 and sum(map(len, said)) * 2 > len(run):
                break
        for one in best:
            yield match.start(), match.end(), one


_HEX = re.compile(r"(?:(?:0[xX]|\\[xX])?[0-9A-Fa-f]{2}[ ,:;\n]{0,2}){8,}[0-9A-Fa-f]?")
_NOT_HEX = re.compile(r"0[xX]|\\[xX]|[^0-9A-Fa-f]")


def _hex(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _HEX.finditer(text):
        run = _NOT_HEX.sub("", match[0])
        best: list[str] = []
        for step in range(2):
            said = _readable(bytes.fromhex(run[step : step + (len(run) - step) // 2 * 2]))
            if sum(map(len, said)) > sum(map(len, best)):
                best = said
        for one in best:
            yield match.start(), match.end(), one


_ESCAPE = re.compile(
    r"(?:%[0-9A-Fa-f]{2})+|\\u\{[0-9A-Fa-f]{1,6}\}|\\[uU](?:0000)?[0-9A-Fa-f]{4}|(?:\\[xX][0-9A-Fa-f]{2})+"
    r"|(?:\\[0-7]{3})+|&#[0-9]{1,7};?|&#[xX][0-9A-Fa-f]{1,6};?|&[A-Za-z]{2,10};"
)
_ESCAPES = re.compile(r"[%\\&]")
_AROUND = 48  # characters before, between and after escapes that are read with them


def _escapes(text: str) -> Iterator[tuple[int, int, str]]:
    """URL, JSON, C and HTML escapes with the words around them; two or more together, for one is a sign like any."""
    if not _ESCAPES.search(text):
        return
    first = last = count = 0
    for match in _ESCAPE.finditer(text):
        if count and match.start() - last > _AROUND:
            if count > 1:
                yield _unescaped(text, first, last)
            count = 0
        if not count:
            first = match.start()
        last = match.end()
        count += 1 if len(match[0]) < 6 or match[0][0] == "&" or match[0][1] in "uU" else 2
    if count > 1:
        yield _unescaped(text, first, last)


def _unescaped(text: str, first: int, last: int) -> tuple[int, int, str]:
    before = text[max(0, first - _AROUND) : first].rpartition("\n")[2]
    after = text[last : last + _AROUND].partition("\n")[0]
    start, end = first - len(before), last + len(after)
    return (
        start,
        end,
        _ESCAPE.sub(_meant, text[start:end].replace("+", " ") if "%" in text[first:last] else text[start:end]),
    )


def _meant(match: re.Match[str]) -> str:
    code = match[0]
    if code[0] == "&":
        return html.unescape(code)
    if code[0] == "%":
        return unquote_to_bytes(code).decode("utf-8", "replace")
    if code[1] in "uU":
        value = int(code[2:].strip("{}"), 16)
        return chr(value) if value < 0x110000 else ""
    if code[1] in "xX":
        return bytes.fromhex(code.replace(code[:2], "")).decode("utf-8", "replace")
    return bytes(int(part, 8) & 0xFF for part in code.split("\\")[1:]).decode("utf-8", "replace")


_BINARY = re.compile(r"(?<![0-9])(?:[01]{8}[ ,\n]{0,2}){4,}")
_DECIMAL = re.compile(r"(?<![0-9])(?:[0-9]{2,3}[ ,]{1,2}){7,}[0-9]{2,3}(?![0-9])")


def _numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Bytes as eight bits or as decimal numbers."""
    for match in _BINARY.finditer(text):
        bits = re.sub("[^01]", "", match[0])
        for one in _readable(bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))):
            yield match.start(), match.end(), one
    for match in _DECIMAL.finditer(text):
        values = [int(part) for part in re.split("[ ,]+", match[0])]
        if max(values) < 256:
            for one in _readable(bytes(values)):
                yield match.start(), match.end(), one


_FINDERS: dict[str, Finder] = {"base64": _base64, "hex": _hex, "escaped": _escapes, "numbers": _numbers}
