"""Numbers of people in runs of digits: identity cards, bank cards, mobile phones, landlines.

Every digit of a text and what stands between it and the next is worked out at once, then each kind asks all places for
its length, prefix and checksum at once: the work is the same for a text of digits as for any other. A number begins and
ends where a group of digits does; one whose digits all stand apart must stand apart further from what is around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from guard.inputs.normalising import View

Digits = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# What may stand between two digits of one number, and how much of it.
_BETWEEN = " -._/*()+|~,\n'"  # and the middle dot
MAX_BETWEEN = 3
APART = 99  # further apart than any number is


class Candidate(NamedTuple):
    """A number in a view, end exclusive."""

    start: int
    end: int
    kind: str
    rule: str


@dataclass(frozen=True)
class Row:
    """All digits of a view in a row. at: where each stands. gaps[k]: characters between digit k-1 and digit k, APART at
    either end and where something else stands between; one longer than `values`."""

    values: Digits
    at: Digits
    gaps: Digits
    nulls: Digits  # how many gaps of 0 there are before each place

    @classmethod
    def of(cls, view: View) -> Row:
        codes = view.codes
        at = np.flatnonzero((codes >= 0x30) & (codes <= 0x39))
        values = codes[at].astype(np.int64) - 0x30
        gaps = np.full(len(at) + 1, APART, dtype=np.int64)
        if len(at) > 1:
            between = np.diff(at) - 1
            joiner = np.zeros(128, dtype=bool)
            joiner[[ord(char) for char in _BETWEEN]] = True
            small = codes < 128
            joining = np.zeros(len(codes) + 1, dtype=np.int64)
            flags = np.zeros(len(codes), dtype=bool)
            flags[small] = joiner[codes[small]]
            flags |= codes == 0xB7
            joining[1:] = np.cumsum(flags)
            all_join = joining[at[1:]] - joining[at[:-1] + 1] == between
            gaps[1:-1] = np.where(all_join & (between <= MAX_BETWEEN), between, APART)
        nulls = np.concatenate(([0], np.cumsum(gaps == 0)))
        return cls(values, at, gaps, nulls)

    def windows(self, length: int) -> Digits:
        """Where numbers of so many digits may begin."""
        count = len(self.values) - length + 1
        if count <= 0:
            return np.zeros(0, dtype=np.int64)
        first = np.arange(count)
        before, after = self.gaps[:count], self.gaps[length : length + count]
        apart = np.concatenate(([0], np.cumsum(self.gaps == APART)))
        whole = apart[first + length] == apart[first + 1]
        adjacent = self.nulls[first + length] - self.nulls[first + 1]
        spaced = self.gaps[1 : count + 1]
        stands_out = (adjacent > 0) | ((before > spaced) & (after > spaced))
        return first[(before > 0) & (after > 0) & whole & stands_out]

    def number(self, first: Digits, start: int, length: int) -> Digits:
        """The value of `length` digits from `start` on of each window."""
        result = np.zeros(len(first), dtype=np.int64)
        for offset in range(start, start + length):
            result = result * 10 + self.values[first + offset]
        return result

    def place(self, first: int, length: int) -> tuple[int, int]:
        return int(self.at[first]), int(self.at[first + length - 1]) + 1


# --- resident identity cards: GB 11643-1999, the provinces of GB/T 2260 ------------------------------------------

_PROVINCES = (
    11, 12, 13, 14, 15, 21, 22, 23, 31, 32, 33, 34, 35, 36, 37, 41, 42, 43, 44, 45, 46, 50, 51, 52, 53, 54, 61, 62, 63,
    64, 65, 71, 81, 82, 83, 91,
)  # fmt: skip
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS = (1, 0, 10, 9, 8, 7, 6, 5, 4, 3, 2)  # by the sum modulo 11; 10 is written X
OLDEST, NEWEST = 1880, 2099  # years of birth: a verdict does not depend on the day on which it is had


@cache
def _days() -> Mask:
    """Which of yyyymmdd from OLDEST on is a day, by (year, mmdd)."""
    table = np.zeros((NEWEST - OLDEST + 1, 10000), dtype=bool)
    for year in range(OLDEST, NEWEST + 1):
        for month in range(1, 13):
            for day in range(1, 32):
                try:
                    date(year, month, day)
                except ValueError:
                    break
                table[year - OLDEST, month * 100 + day] = True
    return table


def _is_day(years: Digits, days: Digits) -> Mask:
    known = (years >= OLDEST) & (years <= NEWEST)
    return known & _days()[np.where(known, years, OLDEST) - OLDEST, days]


def _resident_ids(row: Row, view: View) -> Iterator[Candidate]:
    provinces = np.zeros(100, dtype=bool)
    provinces[list(_PROVINCES)] = True
    for length in (18, 17, 15):
        first = row.windows(length)
        first = first[provinces[row.number(first, 0, 2)]]
        if length == 15:
            first = first[_is_day(1900 + row.number(first, 6, 2), row.number(first, 8, 4))]
        else:
            first = first[_is_day(row.number(first, 6, 4), row.number(first, 10, 4))]
        if not len(first):
            continue
        if length == 15:
            for one in first.tolist():
                yield Candidate(*row.place(one, 15), "resident_id", "resident_id_15")
            continue
        total = sum(weight * row.values[first + offset] for offset, weight in enumerate(_WEIGHTS))
        checks = np.array(_CHECKS)[total % 11]
        if length == 18:
            for one in first[checks == row.values[first + 17]].tolist():
                yield Candidate(*row.place(one, 18), "resident_id", "resident_id_18")
        else:
            for one in first[checks == 10].tolist():
                start, end = row.place(one, 17)
                tail = _TAIL.match(view.text, end)
                if tail:
                    yield Candidate(start, tail.end(), "resident_id", "resident_id_18")


_TAIL = re.compile(r"[ \-._/·]{0,3}[xX×](?![A-Za-z0-9])")


# --- bank cards: ISO/IEC 7812, ranges of the card schemes and of Chinese banks before UnionPay ---------------------

CARD_LENGTHS = (19, 18, 17, 16)


def _issued(six: Digits) -> Mask:
    two, three, four = six // 10000, six // 1000, six // 100
    return (
        (two == 62)
        | (two == 60)
        | (two == 81)
        | ((two >= 40) & (two <= 49))
        | ((two >= 50) & (two <= 58))
        | (two == 65)
        | ((three >= 644) & (three <= 649))
        | (three == 690)
        | ((four >= 2221) & (four <= 2720))
        | ((four >= 3528) & (four <= 3589))
        | (four == 9558)
        | (four == 9559)
        | (four == 9400)
        | (four == 9843)
        | (two == 68)
    )


def _bank_cards(row: Row) -> Iterator[Candidate]:
    for length in CARD_LENGTHS:
        first = row.windows(length)
        first = first[_issued(row.number(first, 0, 6))]
        if not len(first):
            continue
        total = np.zeros(len(first), dtype=np.int64)
        for offset in range(length):
            value = row.values[first + offset]
            if (length - offset) % 2 == 0:
                value = value * 2
                value = value - 9 * (value > 9)
            total += value
        all_alike = np.ones(len(first), dtype=bool)
        for offset in range(1, length):
            all_alike &= row.values[first + offset] == row.values[first]
        for one in first[(total % 10 == 0) & ~all_alike].tolist():
            yield Candidate(*row.place(one, length), "bank_card", "bank_card_luhn")


# --- telephones: the numbering plan of the MIIT -----------------------------------------------------------------

_NOT_ALLOTTED = (140, 142, 143, 154, 160, 161, 163, 164, 168, 169, 179, 194)
_COUNTRY = re.compile(r"(?:\(?(?:\+|00)[ -]?86\)?|(?<![0-9])86)[ \-._·)]{0,3}\(?\Z")


def _mobiles(row: Row, view: View) -> Iterator[Candidate]:
    allotted = np.zeros(1000, dtype=bool)
    allotted[130:200] = True
    allotted[list(_NOT_ALLOTTED)] = False
    for prefix in (0, 2, 4):  # none, 86, 0086: their digits run on into the number where nothing parts them
        first = row.windows(11 + prefix)
        if prefix:
            first = first[row.number(first, 0, prefix) == 86]
        first = first[allotted[row.number(first, prefix, 3)]]
        for one in first.tolist():
            start, end = row.place(one, 11 + prefix)
            if prefix == 0:
                country = _COUNTRY.search(view.text, max(0, start - 10), start)
                start = country.start() if country else start
            elif view.text[start - 1 : start] == "+":
                start -= 1
            yield Candidate(start, end, "mobile", "mobile")


_AREAS_OF_TWO = {10, 20, 21, 22, 23, 24, 25, 27, 28, 29}


def _landlines(row: Row, view: View) -> Iterator[Candidate]:
    """An area code and a subscriber's number. Numbers of firms (400, 800, 95…) are nobody's."""
    for area, lengths in ((3, (8,)), (4, (8, 7))):
        for local in lengths:
            first = row.windows(area + local)
            code = row.number(first, 0, area)
            known = np.isin(code, list(_AREAS_OF_TWO)) if area == 3 else (code >= 310) & (code <= 999)
            lead = row.values[first + area]
            # the number begins a group of its own, or nothing parts any of its digits
            within = row.nulls[first + area + local] - row.nulls[first + 1] == area + local - 1
            parted = row.gaps[first + area] > 0
            for one in first[
                known & (row.values[first] == 0) & (((lead >= 2) & (lead <= 8) & within) | ((lead >= 1) & parted))
            ].tolist():
                start, end = row.place(one, area + local)
                extension = _EXTENSION.match(view.text, end)
                if view.text[start - 1 : start] == "(" and ")" in view.text[start:end]:
                    start -= 1
                yield Candidate(start, extension.end() if extension else end, "landline", "landline")
    abroad = row.windows(12)
    abroad = abroad[
        (row.number(abroad, 0, 2) == 86) & (row.values[abroad + 2] != 1) | (row.number(abroad, 0, 4) == 8610)
    ]
    for one in abroad.tolist():
        start, end = row.place(one, 12)
        if view.text[start - 1 : start] == "+" and 2 <= row.values[one + (4 if row.values[one + 2] <= 2 else 5)] <= 8:
            yield Candidate(start - 1, end, "landline", "landline_abroad")


_EXTENSION = re.compile(r"[ ]?(?:转|分机|ext\.?|-)[ ]?[0-9]{1,5}(?![0-9])")


# --- what is around a number ------------------------------------------------------------------------------------

# Names of numbers that are nobody's. They speak only of kinds without a checksum.
_OTHERS = re.compile(
    r"(?:订单|单据|流水|运单|快递|物流|工单|交易|批次|合同|发票|凭证|条码|序列|产品|基金|股票|证券|设备|商品|案件|任务|会话|版本)"
    r"(?:编号|号码|单号|代码|号|码|id)?[^0-9A-Za-z]{0,4}\Z"
    r"|(?:编号|单号|序号|代码|金额|余额|总额|市值|imei|serial|s/?n|order|invoice|tracking|ref|sku|isbn|trace|batch|version|amount"
    r"|balance|timestamp|时间戳)(?: ?(?:no|number|id|#))?[^0-9A-Za-z]{0,4}\Z",
    re.IGNORECASE,
)
_MONEY_BEFORE = re.compile(r"(?:[¥￥$€£]|rmb|cny|usd|人民币|金额|约|共|合计)[ :]{0,2}\Z", re.IGNORECASE)
_MONEY_AFTER = re.compile(
    r"\.[0-9]{1,2}(?![0-9])|[ ]?(?:元|万|亿|美元|港元|块|股|份|手|%|个|次|件|吨|字节|毫秒|cny|rmb|usd|hkd)",
    re.IGNORECASE,
)
_LABELS = re.compile(
    r"(?<![A-Za-z])(?:tel|phone|mobile|cell|call|card|no|id|num|number|contact|wechat|weixin|wx|vx|m|t|p|sfz|sj)\Z",
    re.IGNORECASE,
)
_CHECKED = ("resident_id_18", "bank_card_luhn")
_LOOK = 16


def _stands_alone(view: View, one: Candidate) -> bool:
    """Whether what is around a number leaves it one: no part of a name of something, no amount, no serial."""
    text = view.text
    before = text[max(0, one.start - _LOOK) : one.start]
    after = text[one.end : one.end + 8]
    if before[-1:].isascii() and (before[-1:].isalpha() or before[-1:] == "_") and not _LABELS.search(before):
        return False
    if after[:1].isascii() and (after[:1].isalpha() or after[:1] == "_") and one.rule not in _CHECKED:
        return False
    if one.rule in _CHECKED:
        return True
    if _OTHERS.search(before) or _MONEY_BEFORE.search(before) or _MONEY_AFTER.match(after):
        return False
    return not (before[-1:] in ".," and before[-2:-1].isdigit())


def numbers(view: View) -> list[Candidate]:
    """view: folded, with numerals as digits. All that may be numbers of people, overlaps among them."""
    row = Row.of(view)
    if len(row.values) < 7:
        return []
    found = [
        *_resident_ids(row, view),
        *_bank_cards(row),
        *_mobiles(row, view),
        *_landlines(row, view),
    ]
    return [one for one in found if _stands_alone(view, one) and _grouped(view.text[one.start : one.end], one.kind)]


_COMMAS = re.compile(r"[0-9],[0-9]")


def _grouped(text: str, kind: str) -> bool:
    """Commas group thousands: a number of people has them only between single digits or groups of four."""
    if not _COMMAS.search(text) or kind == "landline":
        return "," not in text
    groups = [len(group) for group in text.split(",")]
    return max(groups) == 1 or (groups[0] in (3, 4) and all(size == 4 for size in groups[1:-1]) and groups[-1] <= 4)
