"""Words that a profile does not keep, or does not show, found however they are spelled.

Text is first brought to a few plain spellings (`spellings`), so that full width, accents, invisible characters, odd
hyphens, gaps within a word and look-alike letters hide nothing; then a vocabulary is looked for. It knows words, not
meanings: it stops slips and simple tricks, not a writer who describes an illness without naming it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

# Letters of other scripts that look like Latin ones, and traditional characters of the vocabulary below.
_FOLDED = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u043c\u0442\u043d"  # Cyrillic
    "\u03b1\u03bf\u03c1\u03b9\u03ba\u03bd\u03c4"  # Greek
    "錢額報監關會瘍壓臟鬱殘懷產術藥佛猶聖經齋廟燒單購贖為異機構零",
    "aeopcyxismth"
    "aopikvt"
    "钱额报监关会疡压脏郁残怀产术药佛犹圣经斋庙烧单购赎为异机构零",
)  # fmt: skip
# Nothing to see, though letters or symbols by their category.
_INVISIBLE = frozenset("\u115f\u1160\u3164\u2800")
# Dashes that are no dash by their category; `_` parts words as well.
_DASHES = frozenset("_\u2212\u30fc\u2043\u02d7")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_LETTER_BY_LETTER = re.compile(r"(?<![a-z0-9])(?:[a-z0-9][ .*/|-]{1,3}){2,}[a-z0-9](?![a-z0-9])")
_WITHIN_A_WORD = re.compile(r"(?<=[a-z])[-.*'](?=[a-z])")
_BETWEEN_CHARACTERS = re.compile(r"[\s\-.·・*/|~+'\"“”]+")


def _plain(text: str) -> str:
    """Compatibility forms and accents undone, nothing invisible, every dash and `_` a '-', one space at most."""
    kept = []
    for char in unicodedata.normalize("NFKD", text):
        category = unicodedata.category(char)
        if category in ("Mn", "Me", "Cf") or char in _INVISIBLE:
            continue
        kept.append("-" if category == "Pd" or char in _DASHES else " " if category == "Cc" else char)
    return " ".join("".join(kept).split())


def _folded(text: str) -> str:
    return text.casefold().translate(_FOLDED)


def written(text: str) -> str:
    """The text as it is read, in one case: without width, accents, invisible characters and letters of other scripts
    that look like Latin ones, every dash a '-', every decimal digit one of 0 to 9."""
    if text.isascii():
        return text.casefold()
    plain = _folded(_plain(text))
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in plain)


def spellings(text: str) -> tuple[str, str, str, str]:
    """The text as it is looked at, case folded: as written; CamelCase parted; words and letters joined over hyphens
    and gaps; and closed up for Chinese, where a gap parts no words. Sentences stay apart in all of them."""
    plain = _plain(text)
    written = _folded(plain)
    by_letter = _LETTER_BY_LETTER.sub(lambda found: re.sub(r"[^a-z0-9]", "", found[0]), written)
    return (
        written,
        _folded(_CAMEL.sub(" ", plain)),
        _WITHIN_A_WORD.sub("", by_letter),
        _BETWEEN_CHARACTERS.sub("", written),
    )


def _vocabulary(*, words: str, chinese: str) -> Callable[[str], bool]:
    """words: stand between what is no Latin letter (Chinese, digits, '-' and `_` part words). chinese: anywhere."""
    latin = re.compile(rf"(?<![a-z])(?:{words})(?![a-z])")
    han = re.compile(chinese)

    def found(text: str) -> bool:
        *apart, closed = spellings(text)
        # Latin is not looked for where spaces are gone: "african certificates" would hold a cancer.
        return any(latin.search(one) for one in apart) or any(han.search(one) for one in (*apart, closed))

    return found


# Health and religion are not an advisor's to keep (sensitive personal information that advice does not need).
# 中风 is a stroke, 中风险 medium risk; 教会 is a church and "has taught"; insurance against illness may be spoken of.
speaks_of_health_or_religion = _vocabulary(
    words=r"cancer\w*|tumou?rs?|carcinoma|leuka?emia|lymphoma|melanoma|metasta\w*|chemo\w*|radiotherap\w*|oncologists?"
    r"|diabet\w*|insulin|hypertensi\w*|depress(?:ion|ed)|antidepressants?|hiv|(?<!visual )aids|hepatitis"
    r"|tubercul\w*|asthma\w*"
    r"|epilep\w*|dialysis|dementia|alzheimer\w*|parkinson\w*|autis\w*|adhd|bipolar|schizo\w*|psychiatr\w*"
    r"|mental(?:ly)? (?:health|ill\w*)|anxiety disorder|heart (?:attack|disease|surgery|failure|condition)"
    r"|a stroke(?! of)"
    r"|pregnan\w*|miscarriages?|abortions?|ivf|disabilit\w*(?! (?:cover|insurance|polic))"
    r"|wheelchair|surgery|hospitali[sz]\w*|hospice"
    r"|in (?:the )?hospital(?! (?:reit|sector|bond|stock|share|operator|group|fund))"
    r"|medications?|medical (?:history|condition|record)s?|diagnosed|alcoholi\w*|rehab"
    r"|(?:is|was|been|falls?|fell|seriously|terminally|chronically|very) ill"
    r"|(?:illness(?:es)?|diseases?)(?! (?:cover|insurance|polic))"
    r"|religio\w*|church(?:es|goers?)?(?! (?:street|road|st|rd|lane))|mosques?|synagogues?|to (?:the |a )?temple"
    r"|pray(?:s|ed|ing|ers?)?|worship\w*|bible|qur-?an|koran|ramadan|hijab|imam|rabbi|priest|pastor|bapti[sz]\w*"
    r"|muslims?|moslems?|islam\w*|christian\w*|catholic\w*|protestants?|buddhis\w*|taois\w*|jew(?:s|ish)?|judaism"
    r"|hindu\w*|sikhs?|atheis\w*|falun\w*",
    chinese=r"病史|患病|患有|患者|得病|生病|病情|重病|绝症|慢性病|确诊|癌|肿瘤|化疗|放疗|糖尿病|高血压|高血糖|心脏病|冠心病"
    r"|心梗|脑梗|中风(?!险)|白血病|肝炎|乙肝|尿毒症|透析|抑郁|焦虑症|躁郁|双相|精神病|精神分裂|自闭症|痴呆|帕金森|癫痫|哮喘"
    r"|艾滋|残疾|残障|怀孕|孕妇|流产|堕胎|动手术|做手术|手术后|住院|吃药|服药|就诊|疾病(?!保|险)|大病(?!保|医保|险)"
    r"|宗教|信教|信佛|拜佛|念佛|佛教|道教|基督|天主教|伊斯兰|穆斯林|教徒|回教|清真|犹太|教堂|去教会|教会(?=活动|聚会|成员|弟兄)"
    r"|做礼拜|礼拜堂|祈祷|祷告|圣经|古兰经|斋月|牧师|神父|阿訇|信仰|信主|受洗|皈依|寺庙|烧香|法轮",
)

# Words that would tip off whoever reads them outside risk: RISK-003, 004, 008 and what they are about. What a firm
# tells everybody is let pass: share splits, 大额存单 and limits on large subscriptions, warnings of suspicious calls.
tips_off = _vocabulary(
    words=r"(?:risk|rule)[ -]*0+[ -]*[348](?!\d)|aml\d*(?:[ -]?c[tf]+)?|amld|(?:anti[ -]*)?money[ -]*launder\w*"
    r"|launder(?:ing|ed|s)?"
    r"|large[ -]*amounts?(?! of (?!cash|trad|transact|deposit|transfer|money))|large[ -]value[ -]transactions?"
    r"|reporting[ -]*(?:limits?|thresholds?|dut(?:y|ies))"
    r"|just (?:under|below) (?:the |its |a )?(?:cash )?(?:limit|threshold)s?"
    r"|currency transaction reports?|(?<!re-)structuring|smurfing|agent[ -]*behaviou?r\w*|advisor conduct"
    r"|suspicious(?:ly)?(?! (?:phone |text )?(?:calls?|messages?|links?|e-?mails?|texts?|sms|web-?sites?|sites?))"
    r"|suspicious[ -]*(?:transaction|activit|trad)\w*|suspicions?|suspected"
    r"|strs?|(?<!hong kong )(?<!macau )(?<!macao )sars?"
    r"|(?:filed|reported|disclosed) (?:with|to) (?:the )?(?:regulat\w*|authorit\w*|police|fiu|pboc|central bank)"
    r"|fiu|financial intelligence|camlmac|tipping[ -]*off|terroris[tm] financ\w*|(?:fan)?xiqian",
    chinese=r"(?:risk|rule|规则)0+[348](?!\d)|洗钱|反洗|黑钱|恐怖融资|化整为零|(?<!份额)(?<!股票)(?<!股份)拆分|分拆(?!上市)"
    r"|大额(?!存单|存款|申购|赎回|支出|消费|开支|保单)|已报送|已上报|(?:报送|上报|报告)(?:给|至|到)?(?:监管|人行|央行|人民银行)"
    r"|报告(?:标准|限额|门槛|义务)|起报|略?低于(?:报告|报送|大额|现金)"
    r"|可疑(?!的?(?:电话|来电|短信|信息|链接|邮件|网站|网址|二维码|应用|人员))|代理人行为|代理人异常",
)


_NO_LETTER = re.compile(r"[^a-z0-9]")
# A rule by its number, whatever stands between, by zeros or none, in Roman numerals, with l or 1 for i and o for 0.
_RULE_IN_A_CODE = re.compile(
    r"(?:r[il1]sk|ru[l1i]e)[0o]*(?:[348](?!\d)|(?:[il]{3}|[il]v|v[il]{3})(?![ilvx0-9])|three|four|eight)"
    r"|(?<![a-z])r[0o]+[348](?!\d)"
)


def code_tips_off(code: str) -> bool:
    """As `tips_off`, for a code, which is no sentence: its parts are read closed up too, and no rule may be named."""
    closed = _NO_LETTER.sub("", _folded(_plain(code)))
    return tips_off(code) or tips_off(closed) or _RULE_IN_A_CODE.search(closed) is not None


def texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every string in a JSON value with its dotted path, whatever field it is in."""
    if isinstance(value, str):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, (*path, str(name)))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from texts(inner, (*path, str(number)))
