"""Personal data is found however it is written, and what only looks like it is left alone."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.inputs.normalising import layers_of
from guard.inputs.personal import masked, personal, redacted


def items(text: str) -> list[tuple[str, str]]:
    return [(one.kind, text[one.start : one.end]) for one in personal(layers_of(text))]


@pytest.mark.parametrize(
    ("text", "kind", "item"),
    [
        ("我的手机是13800138000，谢谢", "mobile", "13800138000"),
        ("电话+86 138-0013-8000 请联系", "mobile", "+86 138-0013-8000"),
        ("手机一三八零零一三八零零零", "mobile", "一三八零零一三八零零零"),
        ("幺三八〇〇幺三八〇〇〇是我", "mobile", "幺三八〇〇幺三八〇〇〇"),
        ("手机１３８００１３８０００", "mobile", "１３８００１３８０００"),
        ("拨 1 3 8 0 0 1 3 8 0 0 0 找我", "mobile", "1 3 8 0 0 1 3 8 0 0 0"),
        ("tel:138\u200b0013\u200b8000", "mobile", "138\u200b0013\u200b8000"),
        ("号11010519491231002X好的", "resident_id", "11010519491231002X"),
        ("11010519491231002x", "resident_id", "11010519491231002x"),
        ("110105 19491231 002X", "resident_id", "110105 19491231 002X"),
        ("旧证110105491231002在此", "resident_id", "110105491231002"),
        ("卡号6222021234567890128是我的", "bank_card", "6222021234567890128"),
        ("6222 0212 3456 7890 128", "bank_card", "6222 0212 3456 7890 128"),
        ("卡 ４１１１１１１１１１１１１１１１ 号", "bank_card", "４１１１１１１１１１１１１１１１"),
        ("护照E12345678到期", "passport", "E12345678"),
        ("护照 EA1234567", "passport", "EA1234567"),
        ("回乡证H12345678", "travel_permit", "H12345678"),
        ("往来港澳通行证CA1234567", "travel_permit", "CA1234567"),
        ("台胞证12345678", "travel_permit", "12345678"),
        ("代码91110000802100433B", "uscc", "91110000802100433B"),
        ("邮箱zhang.san@qq.com谢谢", "email", "zhang.san@qq.com"),
        ("zhang＠163。com", "email", "zhang＠163。com"),
        ("写到 zhang[at]gmail[dot]com", "email", "zhang[at]gmail[dot]com"),
        ("座机010-62345678", "landline", "010-62345678"),
        ("(021)62345678转123", "landline", "(021)62345678转123"),
        ("车牌粤B·D12345", "plate", "粤B·D12345"),
        ("粵B12345", "plate", "粵B12345"),
        ("我叫张三，住得远", "name", "张三"),
        ("客户王小明的持仓", "name", "王小明"),
        ("my name is John Smith.", "name", "John Smith"),
        ("住在北京市朝阳区建国路88号院3号楼2单元501室。", "address", "北京市朝阳区建国路88号院3号楼2单元501室"),
    ],
)
def test_an_item_is_found_with_its_separators_and_without_its_label(text: str, kind: str, item: str) -> None:
    assert (kind, item) in items(text)


@pytest.mark.parametrize(
    "text",
    [
        "身份证110105194912310021",  # a digit off
        "11010519491331002X",  # no such month
        "卡6222021234567890127",
        "订单号13800138000",
        "金额13800138000元",
        "13800138000.00",
        "SN13800138000",
        "时间戳1732950000000 1732950000123456789",
        "550e8400-e29b-41d4-a716-446655440000",
        "2026-11-30 13:45:12.123456",
        "金额1,234,567,890.12元 份额12345678.90",
        "川A股市场600519",
        "客服400-820-8820或95588",
        "我是高兴的，帮我写段代码",
        "91110000802100433C",
        "14012345678",  # no prefix that was allotted
    ],
)
def test_what_only_looks_like_an_item_is_none(text: str) -> None:
    assert items(text) == []


def test_two_numbers_side_by_side_are_two() -> None:
    assert [item for _, item in items("13800138000 13900139000")] == ["13800138000", "13900139000"]


def test_an_item_in_code_is_all_of_the_code() -> None:
    coded = base64.b64encode("手机13800138000".encode()).decode()
    assert items(f"看{coded}吧") == [("mobile", coded.rstrip("="))] or items(f"看{coded}吧") == [("mobile", coded)]


def test_masking_keeps_the_place_and_the_shape() -> None:
    text = "电话138-0013-8000，邮箱zhang@qq.com，我叫张三。"
    found = personal(layers_of(text))
    assert masked(text, found) == "电话138-****-8000，邮箱z****@qq.com，我叫张*。"
    assert redacted(text, found) == "电话[mobile]，邮箱[email]，我叫[name]。"


@given(st.text(st.sampled_from("0123456789xX -.,零一三八Ｅ京A@.com我叫张市路号\u200b"), max_size=120))
def test_items_never_overlap_and_always_lie_in_the_text(text: str) -> None:
    last = 0
    for one in personal(layers_of(text)):
        assert last <= one.start < one.end <= len(text)
        last = one.end
