"""Makes `tables.npz`: what each code point stands for. Run it when Unicode or a source of look-alikes moves on:

    python -m guard.inputs.normalising.making

The tables are a file, not worked out at run time, so that a verdict of last year can be had again under next year's
Python: Unicode's own data changes with the interpreter. The file's hash is part of a rule set's version.
"""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import numpy.typing as npt

from guard.inputs.normalising.view import CODE_POINTS, DROPPED, EXPANDED, LONGEST, PATH

REPLACEMENT = 0xFFFD

# Scripts whose letters are taken for Latin ones they look like. Others (Arabic, Hebrew, Chinese, ...) have look-alikes
# too, by a stroke or a ring, whose reading as Latin would spoil honest text.
_ALIKE_SCRIPTS = (
    "LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "RUNIC", "DESERET", "CARIAN", "LYCIAN",
    "LYDIAN", "OLD ITALIC", "GOTHIC", "CANADIAN", "VAI", "MODIFIER LETTER", "SCRIPT", "DOTLESS", "TIFINAGH", "OSAGE",
    "ELBASAN", "WARANG", "MIAO", "APL FUNCTIONAL",
)  # fmt: skip
# Small letters that Unicode's list has for their capitals alone.
_ALIKE = dict(zip("вкмнтѕіјеасорхуԁԛԝһոսցքևαβγεηικνορτυχωμσ", "bkmhtsijeacopxydqwhnugpuabyenikvoptuxwuo", strict=True))

_SINGLE = {
    "。": ".", "、": ",", "・": "·", "•": "·", "‧": "·", "∙": "·", "⋅": "·", "●": "·", "○": "〇", "◯": "〇",
    "⁠": "", "ー": "ー", "⁄": "/", "∕": "/", "∶": ":", "〜": "~", "∼": "~", "∣": "|", "│": "|", "¦": "|",
}  # fmt: skip
_DOUBLE_QUOTES = "“”„‟«»「」『』〝〞〟＂″"
_SINGLE_QUOTES = "‘’‚‛‹›′`"
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BLANKS = "\t\x1f\u2800"
_FILLERS = "\u115f\u1160\u3164\uffa0\u180e"


def _alike() -> dict[str, str]:
    """Letters outside ASCII that are taken for the ASCII letter they look like (Unicode TR39)."""
    from confusable_homoglyphs.confusables import confusables_data

    known = dict(_ALIKE)
    for plain in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        for row in confusables_data.get(plain, []):
            other = row["c"]
            if len(other) != 1 or other.isascii() or not unicodedata.category(other).startswith("L"):
                continue
            if unicodedata.name(other, "").startswith(_ALIKE_SCRIPTS):
                known.setdefault(other, plain)
    return known


def _simplified() -> dict[str, str]:
    """Traditional characters in simplified ones, one for one."""
    import opencc

    convert = opencc.OpenCC("t2s").convert
    known: dict[str, str] = {}
    for code in (*range(0x3400, 0xA000), *range(0x20000, 0x32000)):
        was = now = chr(code)
        for _ in range(4):
            after = convert(now)
            if after == now or len(after) != 1:
                break
            now = after
        if now != was:
            known[was] = now
    return known


def _one(char: str, alike: dict[str, str], simplified: dict[str, str]) -> str:
    """What one character, already taken apart by NFKD, stands for."""
    if char in _LINE_ENDS:
        return "\n"
    if char in _BLANKS:
        return " "
    category = unicodedata.category(char)
    if category == "Cs":
        return chr(REPLACEMENT)
    if category in ("Mn", "Me", "Cf", "Cc") or char in _FILLERS or unicodedata.combining(char):
        return ""
    if category == "Zs":
        return " "
    if category == "Nd":
        return str(unicodedata.digit(char))
    if char in _SINGLE:
        return _SINGLE[char]
    if char in _DOUBLE_QUOTES:
        return '"'
    if char in _SINGLE_QUOTES:
        return "'"
    if category == "Pd" or char in "−⁻₋":
        return "-"
    if char in simplified:
        return simplified[char]
    if char in alike:
        return alike[char]
    if len(char.casefold()) > 1:  # ß, ligatures: as long in either case
        return "".join(_one(part, alike, simplified) for part in unicodedata.normalize("NFKD", char.casefold()))
    return char


def make() -> dict[str, npt.NDArray[np.uint32]]:
    """`folds`: pairs of a code point and what it stands for; `expansions`: (place, length) pairs and their letters in
    `letters`; `lowers`: pairs of a code point and its small letter."""
    alike, simplified = _alike(), _simplified()
    folds: list[tuple[int, int]] = []
    lowers: list[tuple[int, int]] = []
    expansions: list[tuple[int, int]] = []
    letters: list[int] = []
    places: dict[str, int] = {}
    for code in range(CODE_POINTS):
        char = chr(code)
        parts = unicodedata.normalize("NFKD", char)
        stands_for = "".join(_one(part, alike, simplified) for part in parts)
        small = char.casefold() if len(char.casefold()) == 1 else char.lower()
        if len(small) == 1 and small != char and stands_for == char:
            lowers.append((code, ord(small)))
        if stands_for == char or len(stands_for) > LONGEST:
            continue
        if not stands_for:
            folds.append((code, DROPPED))
        elif len(stands_for) == 1:
            folds.append((code, ord(stands_for)))
        else:
            if stands_for not in places:
                places[stands_for] = len(expansions)
                expansions.append((len(letters), len(stands_for)))
                letters.extend(map(ord, stands_for))
            folds.append((code, EXPANDED + places[stands_for]))
    return {
        "folds": np.array(folds, dtype=np.uint32),
        "lowers": np.array(lowers, dtype=np.uint32),
        "expansions": np.array(expansions, dtype=np.uint32),
        "letters": np.array(letters, dtype=np.uint32),
    }


if __name__ == "__main__":
    np.savez_compressed(PATH, **make())  # type: ignore[arg-type]
    sys.stdout.write(f"{PATH}: {PATH.stat().st_size} bytes, Unicode {unicodedata.unidata_version}\n")
