"""What a conversation was about before what is shown of it: text, bounded, made from the messages that left.

A summariser is a function `(previous, messages, limit) -> text`: `previous` is the summary so far ('' at first),
`messages` what has left since, oldest first (content cut to its first 1,024 characters), `limit` the most characters
of the answer. SESSION_SUMMARISER names it; one that fails or exceeds the limit costs nothing but the summary: the
former one stays, or it is cut.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import cache

from django.conf import settings
from django.utils.module_loading import import_string

from memory.sessions.entries import Message

logger = logging.getLogger(__name__)

Summariser = Callable[[str, Sequence[Message], int], str]

LINE_CHARS = 160
# A sentence ends at a full stop in either script, or with its line; a stop within a number or a name is none.
_SENTENCE = re.compile(r"[^。！？!?\n]+?(?:[。！？!?]+|\.(?=\s|$)|$|(?=\n))")
_SPACE = re.compile(r"\s+")
# What a later turn is likely to need: figures, names of products and papers, wishes, decisions, refusals.
_WEIGHTS: tuple[tuple[int, re.Pattern[str]], ...] = (
    (3, re.compile(r"\d")),
    (2, re.compile(r"[¥$€£%％‰]|万|亿|元|美元|港币|\b(?:usd|cny|rmb|eur|hkd)\b", re.IGNORECASE)),
    (2, re.compile(r"\d{4}[-/年]\d{1,2}|\d{1,2}月\d{1,2}|[一二三四五六七八九十]+月")),
    (2, re.compile(r"我叫|我是|姓名|名叫|my name|i am |i'm ", re.IGNORECASE)),
    (2, re.compile(r"决定|确认|同意|选择|已经?[买卖办签]|decid|confirm|agree|chose|approve|reject", re.IGNORECASE)),
    (2, re.compile(r"不要|不能|不想|拒绝|取消|禁止|必须|务必|never|must|don't|do not|cancel|refuse", re.IGNORECASE)),
    (1, re.compile(r"想|要|希望|计划|打算|需要|目标|want|need|plan|goal|would like|prefer", re.IGNORECASE)),
    (1, re.compile(r"风险|基金|债|股|理财|保险|产品|账户|持有|赎回|申购|risk|fund|bond|stock|account", re.IGNORECASE)),
    (1, re.compile(r"[?？]\s*$")),
)  # fmt: skip
_FILLER = re.compile(
    r"^(?:好的?|嗯+|谢谢.*|您好|你好|不客气|再见|请问|ok(?:ay)?|thanks?.*|hello|hi|bye|sure)[。！!,.，~ ]*$",
    re.IGNORECASE,
)
_LINE = re.compile(r"^(?:user|assistant|tool|system): ")


def _said(line: str) -> str:
    return line.partition(": ")[2]


def _score(sentence: str) -> int:
    if _FILLER.match(sentence):
        return 0
    return 1 + sum(weight for weight, pattern in _WEIGHTS if pattern.search(sentence))


def _best_line(message: Message) -> str:
    """The sentence of a message that says most, with the one before it where both fit; who said it in front."""
    sentences = [_SPACE.sub(" ", found).strip() for found in _SENTENCE.findall(message.content)]
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        return ""
    best = max(range(len(sentences)), key=lambda place: (_score(sentences[place]), -place))
    text = sentences[best]
    if best and len(sentences[best - 1]) + len(text) < LINE_CHARS and _score(sentences[best - 1]) > 1:
        text = f"{sentences[best - 1]} {text}"
    if len(text) > LINE_CHARS:
        text = text[: LINE_CHARS - 1] + "…"
    return f"{message.role}: {text}"


def extractive(previous: str, messages: Sequence[Message], limit: int) -> str:
    """The default: one line for each message, who said it in front, in order; while they are too long, those that say
    least go, older ones first. Deterministic: sentences are taken as they are, weighed by what they name (figures,
    dates, money, decisions, refusals, wishes, products).

    What is not made of such lines (a summary written by somebody else) stays at the beginning, up to three quarters of
    the limit: its author knew more than the lines do, and these still need room.
    """
    lines = previous.split("\n") if previous else []
    # Another's summary: everything up to our first line.
    own_from = next((place for place, line in enumerate(lines) if _LINE.match(line)), len(lines))
    foreign = "\n".join(lines[:own_from]).strip()
    share = limit * 3 // 4
    if len(foreign) > share:
        foreign = foreign[: share - 1] + "…"
    kept = lines[own_from:]
    for message in messages:
        if message.entry_type != "message":
            kept += [line for line in message.content.split("\n") if line.strip()]
            continue
        line = _best_line(message)
        if line and line not in kept and _score(_said(line)):
            kept.append(line)
    room = limit - (len(foreign) + 1 if foreign else 0)
    length = sum(len(line) + 1 for line in kept) - 1
    ranked = sorted(range(len(kept)), key=lambda place: (_score(_said(kept[place])), place))
    dropped: set[int] = set()
    for place in ranked:
        if length <= room:
            break
        dropped.add(place)
        length -= len(kept[place]) + 1
    text = "\n".join(line for place, line in enumerate(kept) if place not in dropped)
    return f"{foreign}\n{text}".strip("\n") if foreign else text


@cache
def _load(path: str) -> Summariser:
    made: Summariser = import_string(path)
    return made


def summarise(previous: str, messages: Sequence[Message]) -> str:
    """The summary with these messages in it, by the summariser that is set; the former one where it fails."""
    limit = settings.SESSION_SUMMARY_CHARS
    if not messages:
        return previous
    try:
        text = _load(settings.SESSION_SUMMARISER)(previous, messages, limit)
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__} is no text")
        text.encode()
    except Exception as error:  # noqa: BLE001 - whatever a plugged-in function may raise: a conversation does not stop for it
        logger.error("the summariser failed: %s; the summary stays as it was", type(error).__name__)
        return previous
    return text if len(text) <= limit else text[: limit - 1] + "…"
