"""Which questions are the same, and the name under which an answer is kept."""

from __future__ import annotations

import re
import unicodedata

from django.utils.crypto import salted_hmac

from config.base.errors import DomainError
from config.base.fields import canonical_json

MAX_QUESTION_CHARS = 8000
PUBLIC = "public"

_SALT = "memory.profiles.answers"
_SPACE = re.compile(r"\s+")
# What stands at the end and asks nothing: Chinese and English marks; brackets and quotes stay.
_TRAILING = ".。!?,，;；:：、…~～·‥⋯｡､ "
# The full-width forms of ASCII, and the space as wide: the same characters, typed with another keyboard.
_ASCII = {0xFF01 + place: 0x21 + place for place in range(94)} | {0x3000: 0x20}
# A word with one capital, at its beginning, in three letters or more, that follows no number: its case says nothing.
_TITLE = re.compile(r"(?<![A-Za-z0-9_\-./])(?<![0-9] )[A-Z](?=[a-z]{2})[a-z]+(?![A-Za-z0-9_])", re.ASCII)


def normalised(question: str) -> str:
    """The question as it is compared.

    1. NFC; full-width ASCII is ASCII. No other form is another's: 10² is not 102, 2ⁿ not 2n, 2㍙ not 21点. 2. A word
    such as What is what; all others keep their case, for mW is not MW and WHO not who. 3. Runs of white space are one
    space, none at the ends. 4. Marks at the end go. Nothing else: words, order, numbers and marks within count.
    Errors: INVALID_REQUEST for a question that is too long, is no text, or of which nothing is left.
    """
    if len(question) > MAX_QUESTION_CHARS:
        raise DomainError("INVALID_REQUEST", f"question: at most {MAX_QUESTION_CHARS} characters")
    require_text("question", question)
    plain = _SPACE.sub(" ", unicodedata.normalize("NFC", question).translate(_ASCII))
    text = _TITLE.sub(lambda found: found[0].lower(), plain).strip().rstrip(_TRAILING)
    if not text:
        raise DomainError("INVALID_REQUEST", "question: holds no words")
    return text


def require_text(name: str, value: str) -> str:
    """`value`. Errors: INVALID_REQUEST for half of a surrogate pair, which Python holds and nothing can keep."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DomainError("INVALID_REQUEST", f"{name}: holds half of a surrogate pair") from None
    return value


def query_hash(*, tenant: str, agent: str, model: str, knowledge_version: str, scope: str, question: str) -> str:
    """64 hex digits. scope: `public`, or whose and for whom. Keyed with SECRET_KEY: whoever reads the
    names on the server can try no questions against them. Another SECRET_KEY makes all of them misses."""
    told = canonical_json([1, tenant, agent, model, knowledge_version, scope, normalised(question)])
    return salted_hmac(_SALT, told, algorithm="sha256").hexdigest()
