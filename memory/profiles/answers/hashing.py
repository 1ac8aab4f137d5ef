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
# What stands at the end and asks nothing: Chinese and English marks, after NFKC; brackets and quotes stay.
_TRAILING = ".。!?,，;；:：、…~～·‥⋯ "


def normalised(question: str) -> str:
    """The question as it is compared.

    1. NFKC, so that full-width letters and marks are the plain ones; digits that are raised, circled or fractions stay
    as they are, for 10² is not 102; 2. case folded; 3. runs of white space are one space, none at the ends; 4. marks at
    the end go. Nothing else: words, order, numbers and marks within count.
    Errors: INVALID_REQUEST for a question that is too long, or of which nothing is left.
    """
    if len(question) > MAX_QUESTION_CHARS:
        raise DomainError("INVALID_REQUEST", f"question: at most {MAX_QUESTION_CHARS} characters")
    plain = "".join(
        part if kept else unicodedata.normalize("NFKC", part)
        for part, kept in _parts(unicodedata.normalize("NFC", question))
    )
    text = _SPACE.sub(" ", plain.casefold()).strip().rstrip(_TRAILING)
    if not text:
        raise DomainError("INVALID_REQUEST", "question: holds no words")
    return text


def _parts(text: str) -> list[tuple[str, bool]]:
    """Runs of characters, and whether they are numbers that NFKC would turn into others."""
    runs: list[tuple[str, bool]] = []
    for char in text:
        kept = unicodedata.category(char) == "No"
        if runs and runs[-1][1] == kept:
            runs[-1] = (runs[-1][0] + char, kept)
        else:
            runs.append((char, kept))
    return runs


def query_hash(*, tenant: str, agent: str, model: str, knowledge_version: str, scope: str, question: str) -> str:
    """64 hex digits. scope: `public`, or `customer:` and the customer's id. Keyed with SECRET_KEY: whoever reads the
    names on the server can try no questions against them. Another SECRET_KEY makes all of them misses."""
    told = canonical_json([1, tenant, agent, model, knowledge_version, scope, normalised(question)])
    return salted_hmac(_SALT, told, algorithm="sha256").hexdigest()
