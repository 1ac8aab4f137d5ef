"""Papers, plates and addresses on the net: what has letters among its digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from guard.inputs.normalising import View
from guard.inputs.personal.numbers import _OTHERS, Candidate

_GAP = r"[ \-._·/]{0,3}"


def _spaced(*parts: tuple[str, int]) -> str:
    """An expression of characters that may stand apart: (class, how many) one after another."""
    return _GAP.join(_GAP.join([char] * count) for char, count in parts)


_D = "[0-9]"
_FROM, _TO = r"(?<![A-Za-z0-9_@])", r"(?![A-Za-z0-9_@])"

# --- unified social credit codes: GB 32100-2015 -----------------------------------------------------------------

_USCC_CHARS = "0123456789ABCDEFGHJKLMNPQRTUWXY"
_USCC_WEIGHTS = (1, 3, 9, 27, 19, 26, 16, 17, 20, 29, 25, 13, 8, 24, 10, 30, 28)
_USCC = re.compile(
    _FROM + _spaced(("[1-9A-HJ-NPQRTUWXYa-hj-npqrtuwxy]", 2), (_D, 6), ("[0-9A-HJ-NPQRTUWXYa-hj-npqrtuwxy]", 10)) + _TO
)
_LIKE_A_CARD = re.compile(r"[0-9]{6}(?:19|20)[0-9]{9}[0-9X]\Z")
_NOT_CODE = re.compile("[^0-9A-Za-z]")


def _usccs(text: str) -> Iterator[Candidate]:
    for match in _USCC.finditer(text):
        code = _NOT_CODE.sub("", match[0]).upper()
        total = sum(weight * _USCC_CHARS.index(char) for weight, char in zip(_USCC_WEIGHTS, code, strict=False))
        # An identity card with a wrong day or sum is no code by chance: one code in 31 would be.
        if _LIKE_A_CARD.match(code):
            continue
        if code[0] in "123456789AENY" and _USCC_CHARS[-total % 31] == code[17]:
            yield Candidate(match.start(), match.end(), "uscc", "uscc")


# --- passports and travel permits: no checksum, so what is written beside them counts --------------------------------

_PASSPORT_WORDS = re.compile(r"护照|passport", re.IGNORECASE)
_PERMIT_WORDS = re.compile(r"通行证|台胞证|回乡证|台湾居民|港澳居民|居民来往|travel permit|entry permit", re.IGNORECASE)
_PAPER_WORDS = re.compile(r"证件|证号|证件号|document", re.IGNORECASE)
_LOOK = 24

# E and EA..EZ since 2012 and 2017, G before them: ordinary passports of the mainland.
_ORDINARY = re.compile(
    _FROM + rf"(?:{_spaced(('[EGeg]', 1), (_D, 8))}|{_spaced(('[Ee]', 1), ('[A-HJ-NP-Za-hj-np-z]', 1), (_D, 7))})" + _TO
)
# Diplomatic, service and public affairs, Hong Kong, Macao, and papers of 14 or 15 that are still about.
_OTHER_PASSPORT = re.compile(
    _FROM
    + rf"(?:{_spaced(('[DSPKHMdspkhm]', 1), ('[A-Za-z0-9]', 1), (_D, 7))}|{_spaced(('1', 1), ('[45]', 1), (_D, 7))})"
    + _TO
)
_ANY_PASSPORT = re.compile(_FROM + r"[A-Za-z]{1,2}[ \-]?[0-9]{6,9}" + _TO)
# H and M: residents of Hong Kong and Macao. C and CA..CZ, W: to Hong Kong and Macao. L, T: to Taiwan.
_PERMIT = re.compile(
    _FROM
    + rf"(?:{_spaced(('[HMhm]', 1), (_D, 8))}(?:{_GAP}{_D}{_GAP}{_D})?|{_spaced(('[CWLTcwlt]', 1), (_D, 8))}"
    + rf"|{_spaced(('[Cc]', 1), ('[A-HJ-NP-Za-hj-np-z]', 1), (_D, 7))})"
    + _TO
)
_TAIWAN = re.compile(_FROM + r"[0-9]{8}(?:[0-9]{2}(?:[ ]?\(?[A-Za-z]\)?)?)?" + _TO)


def _said(words: re.Pattern[str], text: str, start: int, end: int) -> bool:
    return bool(words.search(text, max(0, start - _LOOK), start) or words.search(text, end, end + 8))


def _passports(text: str) -> Iterator[Candidate]:
    for match in _ORDINARY.finditer(text):
        start, end = match.span()
        if _said(_PERMIT_WORDS, text, start, start):
            yield Candidate(start, end, "travel_permit", "travel_permit")
        elif not _OTHERS.search(text, max(0, start - 16), start):
            yield Candidate(start, end, "passport", "passport")
    for pattern in (_OTHER_PASSPORT, _ANY_PASSPORT):
        for match in pattern.finditer(text):
            if _said(_PASSPORT_WORDS, text, *match.span()):
                yield Candidate(*match.span(), "passport", "passport_named")


def _permits(text: str) -> Iterator[Candidate]:
    for match in _PERMIT.finditer(text):
        start, end = match.span()
        named = _said(_PERMIT_WORDS, text, start, end) or _said(_PAPER_WORDS, text, start, end)
        named = named or (text[start] in "HMChmc" and not _OTHERS.search(text, max(0, start - 16), start))
        if named and not _said(_PASSPORT_WORDS, text, start, start):
            yield Candidate(start, end, "travel_permit", "travel_permit")
    for match in _TAIWAN.finditer(text):
        if re.search(r"台胞证|台湾居民|来往大陆|通行证", text[max(0, match.start() - _LOOK) : match.start()]):
            yield Candidate(*match.span(), "travel_permit", "travel_permit_named")


# --- plates: GA 36-2018 ----------------------------------------------------------------------------------------

_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_L, _A = "[A-HJ-NP-Za-hj-np-z]", "[A-HJ-NP-Za-hj-np-z0-9]"
_SEP = r"[ ·.\-]{0,2}"
# Of a new-energy car a letter before or after five places; else five places, or four and a word.
_ENERGY = rf"(?:[A-HJKa-hjk]{_SEP}{_A}{_SEP}{_spaced((_D, 4))}|{_spaced((_D, 5))}{_SEP}[A-HJKa-hjk])"
_ORDINARY_PLATE = rf"(?:{_A}{_SEP}){{4}}(?:{_A}|[挂学警港澳领试超])"
_OF_EMBASSIES = rf"使{_SEP}{_spaced((_D, 6))}|(?:{_D}{_SEP}){{6}}使"
_OF_POLICE = rf"WJ{_SEP}[{_PROVINCES}]?{_SEP}{_spaced((_D, 4))}{_SEP}{_A}"
_PLATE = re.compile(
    rf"(?:[{_PROVINCES}]{_SEP}{_L}{_SEP}(?:{_ENERGY}|{_ORDINARY_PLATE})|{_OF_EMBASSIES}|{_OF_POLICE})" + _TO
)


def _plates(text: str) -> Iterator[Candidate]:
    for match in _PLATE.finditer(text):
        body = _NOT_CODE.sub("", match[0])
        letters = sum(char.isalpha() for char in body)
        if len(body) - letters >= 3 and letters <= 4:
            yield Candidate(*match.span(), "plate", "plate")


# --- e-mail -----------------------------------------------------------------------------------------------------

_LOCAL, _HOST = r"[A-Za-z0-9._%+\-]{1,64}", r"(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}"
_EMAIL = re.compile(rf"(?<![A-Za-z0-9._%+\-]){_LOCAL} ?@ ?{_HOST}(?![A-Za-z0-9\-])")
_SPELT = re.compile(
    r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9._%+\-]{1,64} ?[\[({<] ?(?:at|@|艾特) ?[\])}>] ?[A-Za-z0-9\-]{1,63}"
    r"(?: ?(?:[\[({<] ?(?:dot|点|\.) ?[\])}>]|\.) ?[A-Za-z0-9\-]{1,24}){1,4}(?![A-Za-z0-9\-])",
    re.IGNORECASE,
)
_APART = re.compile(
    r"(?<![A-Za-z0-9._])(?:[A-Za-z0-9._][ ]){1,40}[A-Za-z0-9._]? ?@ ?(?:[A-Za-z0-9\-.] ?){2,40}"
    r"\.(?: ?[A-Za-z]){2,6}(?![A-Za-z0-9])"
)


def _emails(text: str) -> Iterator[Candidate]:
    for pattern in (_EMAIL, _APART) if "@" in text else ():
        for match in pattern.finditer(text):
            yield Candidate(*match.span(), "email", "email")
    for match in _SPELT.finditer(text):
        yield Candidate(*match.span(), "email", "email_spelt")


def papers(view: View) -> list[Candidate]:
    """view: folded, in the case in which it was written."""
    text = view.text
    return [*_usccs(text), *_passports(text), *_permits(text), *_plates(text), *_emails(text)]
