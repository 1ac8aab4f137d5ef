"""What a profile does not keep, and what it does not show: found in every field, however it is spelled."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of
from memory.profiles import services
from memory.profiles.models import CustomerProfileL2, CustomerProfileL3
from memory.profiles.schemas import L2Own, L3Internal, L3Own, Line, Strict
from memory.profiles.wording import speaks_of_health_or_religion, tips_off
from tests.memory.profiles.helpers import ALICE, WEI, make_agent, make_alert, make_assignment, make_caller


def _nodes(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema's alternatives, references followed."""
    if "$ref" in schema:
        yield from _nodes(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _nodes(one, definitions)
    else:
        yield schema


def _example(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    node = next(_nodes(schema, definitions))
    if node["type"] == "object":
        return {name: _example(node["properties"][name], definitions) for name in node.get("required", ())}
    if "enum" in node:
        return node["enum"][-1]
    if "const" in node:
        return node["const"]
    return {"string": "x1", "array": [], "integer": 1}[node["type"]]


def texts_of(
    schema: dict[str, Any], word: str, definitions: dict[str, Any] | None = None
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each place where the schema takes a string: its path, its node, and a payload that says `word` there."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    for node in _nodes(schema, definitions):
        if node.get("type") == "string":
            yield "", node, word
        elif node.get("type") == "array":
            for path, leaf, value in texts_of(node["items"], word, definitions):
                yield f".0{path}", leaf, [value]
        elif node.get("type") == "object":
            assert node.get("additionalProperties") is False, f"{node} takes fields that no test can name"
            for name, inner in node["properties"].items():
                for path, leaf, value in texts_of(inner, word, definitions):
                    yield f".{name}{path}", leaf, {**_example(node, definitions), name: value}


def free_texts(model: type[Strict], word: str) -> dict[str, Any]:
    """Of those the ones that people write words in: no dates, no closed lists."""
    found = texts_of(model.model_json_schema(), word)
    return {
        path.removeprefix("."): payload for path, node, payload in found if not {"format", "enum", "const"} & set(node)
    }


# --- health and religion, l2 ------------------------------------------------------------------------------------

# A name of 32 hexadecimal digits says nothing.
NO_WORDS = {"notes.0.trace_id"}
L2_TEXTS = free_texts(L2Own, "chemo")


def test_the_walk_of_the_schema_finds_the_fields_it_should() -> None:
    assert set(L2_TEXTS) >= NO_WORDS | {
        "stage", "channel", "needs.0", "notes.0.text", "household.0.relation", "household.0.note",
        "next_steps.0.action", "next_steps.0.status", "explanations_given.0.text", "explanations_given.0.product_id",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(set(L2_TEXTS) - NO_WORDS))
def test_every_text_of_l2_is_looked_at(path: str) -> None:
    assert [where for where, _why in L2Own.model_validate(L2_TEXTS[path]).unfit()] == [path]


def test_a_field_that_comes_later_is_looked_at_too() -> None:
    class Pet(Strict):
        name: Line

    class Later(L2Own):
        pets: dict[str, list[Pet]] | None = None

    later = Later.model_validate({"pets": {"dogs": [{"name": "Rex"}, {"name": "the church dog"}]}})
    assert [path for path, _why in later.unfit()] == ["pets.dogs.1.name"]


@pytest.mark.parametrize(
    "said",
    [
        "有糖尿病病史", "糖 尿 病", "糖\u200b尿\u200b病", "糖-尿-病", "糖·尿·病", "糖尿\n病", "患有高血壓",
        "在做化疗", "确诊乳腺癌", "去年中风了", "她怀孕了", "信教，去教堂", "周日去教会活动", "是穆斯林",
        "拜佛", "she is Muslim", "diabetes in the family", "chemo", "Chemotherapy on Mondays",
        "they go to church", "CANCER", "ｃａｎｃｅｒ", "cáncer", "c a n c e r", "c.a.n.c.e.r", "can\u00adcer",
        "can-cer", "сancer", "has_cancer", "hasCancer", "有cancer史", "prays daily", "mental health",
        "he is ill", "heart attack in May", "her illness", "in hospital since May",
    ],
)  # fmt: skip
def test_health_and_religion_are_found(said: str) -> None:
    assert speaks_of_health_or_religion(said)


@pytest.mark.parametrize(
    "said",
    [
        "wants monthly income", "适合中风险产品", "中风险等级R3", "下礼拜回访", "我教会了客户用手机银行",
        "咨询重大疾病保险", "大病医保", "想买医药基金", "critical illness cover", "lives in Church Street",
        "African certificates", "India better than before", "has a strategy", "send factsheet",
        "Churchill fund", "invests in hospital REITs", "a good faith estimate", "病毒",
        "the bank disabled his card", "基本面", "prefers branch visits", "配偶", "spouse",
    ],
)  # fmt: skip
def test_ordinary_words_of_advice_are_kept(said: str) -> None:
    assert not speaks_of_health_or_religion(said)


@pytest.mark.django_db
@pytest.mark.parametrize("path", sorted(set(L2_TEXTS) - NO_WORDS))
def test_a_refused_write_of_l2_is_one_row_without_the_words(path: str) -> None:
    make_assignment()
    with pytest.raises(DomainError, match="health or religion") as refusal:
        services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload=L2_TEXTS[path])
    assert (refusal.value.code, refusal.value.extra["errors"][0]["field"]) == ("INVALID_REQUEST", path)
    assert not CustomerProfileL2.objects.exists()
    [row] = AuditLog.objects.all()
    assert (row.event_type, row.decision, row.object_type) == ("profile_write", "refused", "profile_l2")
    assert (row.object_id, row.actor_id, row.input_summary["fields"]) == (pseudonym_of("default", ALICE), WEI, [path])
    assert "chemo" not in f"{row.input_summary} {refusal.value.detail} {refusal.value.extra}"


@pytest.mark.django_db
def test_needs_may_be_one_string_and_http_answers_422() -> None:
    make_assignment()
    response = make_agent("advisor").put(f"/profiles/l2/{ALICE}/{WEI}", {"needs": "go to church"})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "needs.0")
    assert AuditLog.objects.filter(event_type="profile_write", decision="refused").count() == 1


# --- tipping off, l3 --------------------------------------------------------------------------------------------

L3_TEXTS = {
    path: payload
    for path, payload in free_texts(L3Own, "AML_high").items()
    if path.split(".")[0] not in L3Internal.model_fields
}


def _with_visibility(payload: dict[str, Any], visibility: str) -> dict[str, Any]:
    return {
        name: [{**entry, "visibility": visibility} for entry in value] if isinstance(value, list) else value
        for name, value in payload.items()
    }


def test_the_walk_finds_what_leaves_risk() -> None:
    assert set(L3_TEXTS) == {"flags.0.code", "restrictions.0.text", "reviewed_by"}


@pytest.mark.parametrize("visibility", ["public", "advisor"])
@pytest.mark.parametrize("path", sorted(L3_TEXTS))
def test_every_text_that_leaves_risk_is_looked_at(path: str, visibility: str) -> None:
    fields = L3Own.model_validate(_with_visibility(L3_TEXTS[path], visibility))
    assert [where for where, _why in fields.unfit()] == [path]


@pytest.mark.django_db(transaction=True)
def test_what_is_risks_alone_may_say_it() -> None:
    make_alert()
    services.write_l3(
        caller=make_caller("risk"), customer_id=ALICE,
        payload={
            "flags": [{"code": "AML_high", "visibility": "risk"}, {"code": "structuring"}],
            "restrictions": [{"code": "no_complex", "text": "因反洗钱调查"}],
            "reasons": ["STR filed"], "aml_rating": "AML-B",
        },
    )  # fmt: skip
    assert CustomerProfileL3.objects.exists()


@pytest.mark.parametrize(
    "said",
    [
        "AML_high", "high_AML", "AMLHigh", "aml2", "因AML调查", "A M L", "A.M.L.", "ＡＭＬ", "A\u200bML",
        "АML review", "RISK-003", "因 RISK\u2011003", "RISK\u2013004", "risk_008", "RISK 003", "RISK003",
        "risk\u200b-\u200b003", "规则 003", "STR filed with regulator / 已报送可疑", "STR filed", "str_filed",
        "S-T-R", "two STRs", "a SAR was filed", "suspicious transaction report", "Suspicious_Activity",
        "reported to the regulator", "已报送", "已 报 送", "已上报人民银行", "上报监管", "可疑交易",
        "可\u200b疑 交 易", "交易可疑", "大额报告", "大額交易", "大额", "large-amount", "large amount report",
        "large_amount", "large amounts of cash", "反洗钱", "反洗錢", "洗 钱", "洗—钱", "money laundering",
        "money_laundering", "MoneyLaundering", "anti-money-laundering", "structuring", "cash_structuring",
        "拆分", "分拆交易", "化整为零", "agent-behavior", "代理人行为", "tipping-off", "FIU",
        "terrorist financing", "just under the reporting limit", "three times just below the cash threshold",
        "reporting_threshold", "a reporting duty", "略低于报告标准", "达到起报点",
    ],
)  # fmt: skip
def test_what_would_tip_off_is_found(said: str) -> None:
    assert tips_off(said)


def write_flags(payload: dict[str, Any]) -> None:
    services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload=payload)


@pytest.mark.parametrize(
    "code",
    ["RISK3", "risk.3", "rule_8", "RlSK-003", "R1SK_4", "Risk-III", "rule.iv", "RISK-VIII", "RISK-0O3", "risk_o8",
     "R003", "r_0_0_8", "Rule-Three", "x.risk-3", "xi.qian", "fan-xi-qian", "a_m_l"],
)  # fmt: skip
@pytest.mark.django_db(transaction=True)
def test_a_code_names_no_rule_in_whatever_spelling(code: str) -> None:
    with pytest.raises(DomainError):
        write_flags({"flags": [{"code": code, "visibility": "public"}]})
    write_flags({"flags": [{"code": code, "visibility": "risk"}]})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["max_r3", "RISK-001", "risk_2", "rule_31", "risk-vii", "pep_checked", "risk_level"])
def test_a_code_that_names_none_is_kept(code: str) -> None:
    write_flags({"flags": [{"code": code, "visibility": "public"}]})


@pytest.mark.parametrize(
    "said",
    [
        "a strategy for strong markets", "street, strict, structure", "structured deposits",
        "debt restructuring", "restrictions apply until the recording is done",
        "please complete the call-back first", "请先完成回访", "购买前需双录", "如接到可疑电话请勿透露密码",
        "谨防可疑链接和短信", "Beware of suspicious calls and messages", "大额存单", "基金暂停大额申购",
        "大额赎回请提前一天预约", "股票拆分", "基金份额拆分", "分拆上市", "a large amount of time",
        "Hong Kong SAR", "pep_checked", "watch", "max risk level R3", "risk 3 of 5", "RISK-001",
        "RISK-002 applies", "RISK-0031", "the laundry business", "family, camlin, amlodipine",
        "our report follows", "just under three years", "below the limit of R3", "CRS reporting obligations",
        "our reporting date", "a lost card has to be reported", "报告期内", "低于风险等级",
        "报告已发送给您", "请上报您的新地址", "reassess first", "customer_request",
        "no complex products before the reassessment", "风险等级不匹配", "mainstream",
    ],
)  # fmt: skip
def test_ordinary_sentences_raise_no_alarm(said: str) -> None:
    assert not tips_off(said)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"flags": [{"code": "watch"}, {"code": "AML_high", "visibility": "advisor"}]}, "flags.1.code"),
        ({"flags": [{"code": "structuring", "visibility": "advisor"}]}, "flags.0.code"),
        ({"flags": [{"code": "RISK-004", "visibility": "public"}]}, "flags.0.code"),
        (
            {"restrictions": [{"code": "no_complex", "text": "因 RISK\u2011003", "visibility": "public"}]},
            "restrictions.0.text",
        ),
        (
            {"restrictions": [{"code": "no_complex", "text": "因反洗钱调查", "visibility": "advisor"}]},
            "restrictions.0.text",
        ),
        ({"reviewed_by": "aml-team"}, "reviewed_by"),
    ],
)
def test_a_refused_write_of_l3_is_one_row_without_the_words(payload: dict[str, Any], field: str) -> None:
    make_alert()
    with pytest.raises(DomainError, match="tip off") as refusal:
        services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload=payload)
    assert (refusal.value.status, refusal.value.extra["errors"][0]["field"]) == (422, field)
    assert not CustomerProfileL3.objects.exists()
    [row] = AuditLog.objects.all()
    assert (row.event_type, row.decision, row.object_type) == ("profile_write", "refused", "profile_l3")
    name = pseudonym_of("default", ALICE)
    assert row.input_summary == {"code": "INVALID_REQUEST", "customer_id": name, "fields": [field]}


def test_long_texts_are_looked_at_in_a_moment() -> None:
    started = perf_counter()
    for text in ("a " * 30_000, "a-" * 30_000, "字 " * 20_000, "risk 0" * 10_000, "money " * 10_000, " " * 60_000):
        tips_off(text)
        speaks_of_health_or_religion(text)
    assert perf_counter() - started < 5
