"""Names where the words around them make them names, and addresses of houses."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from guard.inputs.engine import Expression
from guard.inputs.normalising import View
from guard.inputs.personal.numbers import Candidate

# The 300 commonest surnames cover 97 % of Chinese people; then those of two characters.
_KNOWN = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_SURNAMES = "".join(_KNOWN["surnames"].split())
_DOUBLE = "|".join(_KNOWN["double_surnames"].split())
# Words that begin as a surname does. Compared with the first two characters of what was taken for a name.
_WORDS = frozenset(_KNOWN["words"].split())
_HAN = "[\u4e00-\u9fff]"
_NAME = rf"(?:(?:{_DOUBLE}){_HAN}{{1,2}}|[{_SURNAMES}]{_HAN}{{1,2}}|{_HAN}{{2,4}}·{_HAN}{{2,6}})"
# What ends a name: no Chinese character, or one that goes on with a sentence.
_ENDS = re.compile(
    r"$|[^\u4e00-\u9fff·A-Za-z]|[的是在已想要请于和与及有为住电手身来说申购买向可您你今现从把被将需]|先生|女士|小姐|同学|经理|老师|客户"
)
_SURE = Expression(
    r"(?:姓名|户名|联系人|收件人|收款人|付款人|持卡人|开户人|投保人|被保险人|受益人|经办人|负责人|法定代表人|法人代表|客户名称|真实姓名|本名|名字)"
    rf"(?:是|为|叫|[ :\-|/=\"'(\[]){{1,3}}(?P<name>{_NAME})"
)
_TOLD = Expression(
    r"(?:我叫|我的名字叫|我的名字是|本人叫|名叫|他叫|她叫|全名叫|本人是?|在下|鄙人|客户|用户|投资者|委托人|申请人|患者|我是|这里是|致|尊敬的)"
    rf"[ :\"'(\[]?(?P<name>{_NAME})"
)
_TITLED = Expression(rf"(?P<name>[{_SURNAMES}]{_HAN}{{2}}|(?:{_DOUBLE}){_HAN}{{1,2}})(?:先生|女士|小姐|太太)")
_ENGLISH = re.compile(
    r"(?:my name is|i am called|name ?[:=]|contact ?[:=]|cardholder ?[:=]|customer ?[:=]|mr\.?|mrs\.?|ms\.?) {1,2}",
    re.IGNORECASE,
)
_ENGLISH_NAME = re.compile(r"[A-Z][a-z]{1,15}(?:[ \-][A-Z][a-z]{0,15}){1,2}(?![A-Za-z])")
_TITLES = ("先生", "女士", "小姐", "经理", "总监", "老师", "太太", "同志", "某某", "某")


def _names(view: View) -> Iterator[Candidate]:
    text = view.text
    for expression, rule in ((_SURE, "name_labelled"), (_TOLD, "name_told"), (_TITLED, "name_titled")):
        for start, end in expression.find(view, "name"):
            name = text[start:end]
            if rule == "name_titled":
                if start and "\u4e00" <= text[start - 1] <= "\u9fff":
                    continue
            elif not _ENDS.match(text, end):
                end -= 1
                name = name[:-1]
                if len(name) < 2 or not _ENDS.match(text, end):
                    continue
            if name[:2] in _WORDS or name[1:] in _TITLES:
                continue
            yield Candidate(start, end, "name", rule)
    for label in _ENGLISH.finditer(text):
        named = _ENGLISH_NAME.match(text, label.end())
        if named:
            yield Candidate(*named.span(), "name", "name_english")


# --- addresses --------------------------------------------------------------------------------------------------

_N = r"[0-9零〇一二三四五六七八九十百甲乙丙丁A-Za-z]"
_REGION = rf"{_HAN}{{2,8}}?(?:省|自治区|特别行政区|市|自治州|地区|盟|区|县|旗|新区)"
_ROAD = (
    rf"{_HAN}{{1,12}}?(?:路|街|大街|大道|道|巷|弄|胡同|里|村|镇|乡|庄|屯"
    r"|苑|园|花园|小区|社区|新村|公寓|大厦|广场|中心|城|府|湾|庭|邨)"
)
_PART = r"[ ]?(?:号楼|号院|号|弄|栋|幢|座|单元|楼|层|室|户|组|房|梯|门)"
_HOUSE = rf"{_N}{{1,6}}(?:[\-之]{_N}{{1,4}})?{_PART}"
_BUILDING = rf"(?:{_HAN}{{1,10}}?(?:苑|园|花园|小区|公寓|大厦|广场|中心|城|府|湾|庭))?"
_UNIT = rf"[ ,\-]?{_BUILDING}[ ]?{_N}{{1,5}}(?:[\-之]{_N}{{1,4}})?{_PART}"
_TAIL = rf"{_HOUSE}(?:{_UNIT}){{0,5}}(?:[ \-]?[0-9]{{3,4}})?"
_ADDRESS = Expression(rf"{_REGION}[ ]?(?:{_REGION}[ ]?){{0,4}}{_ROAD}[ ]?(?:{_ROAD}[ ]?)?{_TAIL}")
_LIVES = (
    r"(?:家庭住址|家庭地址|通讯地址|联系地址|收货地址|收件地址|邮寄地址|寄送地址|居住地址|户籍地址|现住址|住址|地址|家住|住在|现住|居住在|寄到|寄往|送到|户籍)"
    r"(?:是|为|在|[ :\-=]){0,3}"
)
_TOLD_ADDRESS = Expression(rf"{_LIVES}(?P<address>(?:{_REGION}[ ]?){{0,4}}{_ROAD}[ ]?(?:{_ROAD}[ ]?)?{_TAIL})")


def _addresses(view: View) -> Iterator[Candidate]:
    for start, end in _TOLD_ADDRESS.find(view, "address"):
        yield Candidate(start, end, "address", "address_told")
    for start, end in _ADDRESS.find(view):
        yield Candidate(start, end, "address", "address")


def people(view: View) -> list[Candidate]:
    """view: folded, in the case in which it was written, Chinese characters together."""
    return [*_names(view), *_addresses(view)]
