"""Identifiers of people in free text: what is hidden, what stays readable."""

from __future__ import annotations

import pytest

from config.base import pii


@pytest.mark.parametrize(
    "written",
    [
        "13800138000",
        "138 0013 8000",
        "138-0013-8000",
        "+86 138 0013 8000",
        "+8613800138000",
        "（0571）8888 8888",
        "0571-88888888",
        "１３８００１３８０００",
        "11010519491231002X",
        "110105194912310021",
        "110105 19491231 002x",
        "6222 0210 0111 6245 702",
        "6222021001116245702",
        "8888888",
        "wang@example.com",
        "wang.jian-guo+x@mail.example.com.cn",
        "王@例子.中国",
    ],
)
@pytest.mark.parametrize("around", ["{}", "电话{}。", "call {}, then wait", "tel.:{}", "({})"])
def test_numbers_and_addresses_of_people_are_hidden(written: str, around: str) -> None:
    found = pii.hidden(around.format(written))
    assert "***" in found
    assert not any(char.isdecimal() or char == "@" for char in found)


@pytest.mark.parametrize("glued", ["tel13800138000", "id11010519491231002X", "QQ6222021001116245702"])
def test_a_known_shape_is_hidden_also_behind_letters(glued: str) -> None:
    assert not any(char.isdecimal() for char in pii.hidden(glued))


@pytest.mark.parametrize(
    "harmless",
    [
        "",
        "72",
        "from 2026-11-30 to 2026/12/01",
        "2026-11-30 09:30",
        "2026-11-30T09:30:00Z",
        "20261130",
        "165000.00 CNY",
        "1,650,000.00",
        "350000 of F0101, R4 over C2",
        "trade TR20261130000123 and T-20261130-001",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01HZX12345678901234567890A",
        "12.5 % of 4 products",
        "三笔，共 50 万元",
    ],
)
def test_amounts_days_and_our_own_ids_stay(harmless: str) -> None:
    assert pii.hidden(harmless) == harmless


def test_whoever_is_known_is_hidden_in_any_shape() -> None:
    known = {"C00017", "王建国", "Ann Li", ""}
    assert pii.hidden("王建国女士 (c00017), Ann Li", known) == "***女士 (***), ***"
    assert pii.hidden("C000175 and XC00017 are others", known) == "C000175 and XC00017 are others"
    assert pii.hidden("客户C00017的", known) == "客户***的"


UNSEEN = "\u200b\u2060\u00ad\u200d\u202e\ufeff\u180e\u0301\ufe0f\u3164\x07\ue000\U000e0041\r"


@pytest.mark.parametrize("apart", [*UNSEEN, " ", "\t", "\u3000", "·", "- ", UNSEEN, f" {UNSEEN}."])
def test_nothing_between_its_characters_shows_a_name_an_id_or_a_number(apart: str) -> None:
    known = {"王建国", "C00017", "José Li"}
    assert pii.hidden(f"与Jose\u0301{apart}Li，谈过", known) == "与***，谈过"
    for name in ("王建国", "C00017", "José Li", "ＪoséLi"):
        for written in (apart.join(name), name[:2] + apart + name[2:]):
            assert pii.hidden(f"与{written}，谈过", known) == "与***，谈过", (name, apart)
    assert pii.hidden(f"电话138{apart}12345678。") == "电话***。"
    assert pii.hidden(f"证件110101{apart}19900307{apart}4514。") == "证件***。"


def test_a_name_or_id_is_hidden_in_every_width() -> None:
    known = {"C00017", "Ann Li", "Ａ９９９９", "\u738b\u6d69"}
    assert (
        pii.hidden("Ｃ０００１７、ｃ０００１７, Ａｎｎ　Ｌｉ, a9999, 王\u6d69, AnnLi", known)
        == "***、***, ***, ***, ***, ***"
    )
    assert pii.hidden("Ｃ０００１７５ and C00017\u200b5, XC00017, Ann Lime", known) == (
        "Ｃ０００１７５ and C00017\u200b5, XC00017, Ann Lime"
    )
    assert pii.hidden("㈱王\u6d69㌘ ﬁne", known) == "㈱***㌘ ﬁne"
    assert pii.hidden("3.5 of C 1, and C1", {"35", "C1"}) == "3.5 of C 1, and ***"


def test_what_hides_nobody_stays_as_it_was_written() -> None:
    for text in ("👩\u200d👩 ½ ﬁ e\u0301 ＡＢ１２", "\ufeff三笔\u200b，共 50 万元", "\u200b" * 40):
        assert pii.hidden(text, {"C00017", "王建国", "\u200b", " "}) == text


def test_a_long_text_takes_no_time() -> None:
    import time

    began = time.perf_counter()
    for text in ("1" * 20_000, "1 - " * 5_000, "a@" * 10_000, "x" * 20_000, "1.1" * 7_000, "+" * 20_000,
                 "王\u200b" * 10_000, "王 " * 10_000, "C0" * 10_000, "- " * 10_000, "ﷺ" * 20_000):  # fmt: skip
        pii.hidden(text, {"C00017", "王建国", "王王王王王王王王"})
    assert time.perf_counter() - began < 2


def test_another_detector_takes_its_place_and_gives_it_back() -> None:
    pii.use(lambda text: text.replace("secret", "***"))
    try:
        assert pii.hidden("a secret of C1, 13800138000", {"C1"}) == "a *** of ***, 13800138000"
    finally:
        pii.use(None)
    assert pii.hidden("13800138000") == "***"
