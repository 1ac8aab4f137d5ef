"""Which questions are the same, and the name under which an answer is kept."""

from __future__ import annotations

import re
import unicodedata

from django.utils.crypto import salted_hmac

from config.base.errors import DomainError
from config.base.fields import canonical_json
from memory.profiles.wording import written

MAX_QUESTION_CHARS = 8000
PUBLIC = "public"

_SALT = "memory.profiles.answers"
_SPACE = re.compile(r"\s+")
# What stands at the end and asks nothing: Chinese and English marks; brackets and quotes stay.
_TRAILING = ".。!?,，;；:：、…~～·‥⋯｡､ "
# The full-width forms of ASCII, and the space as wide: the same characters, typed with another keyboard.
_ASCII = {0xFF01 + place: 0x21 + place for place in range(94)} | {0x3000: 0x20}
# Words that questions begin with and that name nobody and nothing (May, Will, Mark, Gap, Target do). As the first word
# of Latin letters, with one capital, at its beginning: that capital is the sentence's.
_FIRST = re.compile(
    r"^[^A-Za-z0-9]*(?:What|Which|How|When|Where|Why|Who|Whose|Is|Are|Was|Were|Does|Did|Can|Could|Should|Would|Has|Have"
    r"|Please|Tell|Show|Explain|Describe|Compare|List|Give|Suppose|The|This|That|These|Those|There|My|Our|Your)"
    r"(?![A-Za-z0-9_\-./])"
)
# Asks, whatever mark is at its end: begins or ends as no statement does.
_ASKS = re.compile(r"^(?:请问|什么是|为什么|为何|如何|(?:what|why|how|is|are|was|were|does|did|can)\b)|吗$", re.ASCII)
# An id of fewer letters and digits than this is looked for as a word of its own.
_SHORT_ID = 6


def normalised(question: str) -> str:
    """The question as it is compared.

    1. NFC; full-width ASCII is ASCII. No other form is another's: 10² is not 102, 2ⁿ not 2n, 2㍙ not 21点. 2. A word
    that questions begin with, such as What, is what as the first one; all others keep their case, for mW is not MW, WHO
    not who, Turkey not turkey. 3. Runs of white space are one space, none at the ends. 4. Marks at the end go; where
    there is a question mark among them, one stays, unless the words themselves ask: `卖出？` is not `卖出。`. Nothing
    else: words, order, numbers and marks within count.
    Errors: INVALID_REQUEST for a question that is too long, is no text, or of which nothing is left.
    """
    if len(question) > MAX_QUESTION_CHARS:
        raise DomainError("INVALID_REQUEST", f"question: at most {MAX_QUESTION_CHARS} characters")
    require_text("question", question)
    plain = _SPACE.sub(" ", unicodedata.normalize("NFC", question).translate(_ASCII))
    whole = _FIRST.sub(lambda found: found[0].lower(), plain.strip())
    text = whole.rstrip(_TRAILING)
    if not text:
        raise DomainError("INVALID_REQUEST", "question: holds no words")
    asks = "?" in whole[len(text) :] and not _ASKS.search(text)
    return f"{text}?" if asks else text


def require_text(name: str, value: str) -> str:
    """`value`. Errors: INVALID_REQUEST for half of a surrogate pair, which Python holds and nothing can keep."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DomainError("INVALID_REQUEST", f"{name}: holds half of a surrogate pair") from None
    return value


def names_id(text: str, customer_id: str) -> bool:
    """Whether the text names this id, in whatever case, width and script its characters are, and parted in whatever
    way by spaces and marks. A short one (fewer than 6 letters and digits) counts where it stands as a word of its own,
    parted as the id is or not at all. Cost: 0.1 s for
    256 KiB of Chinese, milliseconds for ASCII, half a second at worst."""
    if not any(map(str.isalnum, customer_id)):
        return customer_id in text
    characters = re.findall(r"[a-z0-9]|[^a-z0-9]+", written(customer_id))
    parted = r"[\W_]{0,3}"
    if sum(map(str.isalnum, characters)) >= _SHORT_ID:
        pattern = parted.join(char for char in characters if char.isalnum())
    else:
        pattern = "".join(char if char.isalnum() else parted for char in characters)
        pattern = rf"(?<![a-z0-9]){pattern}(?![a-z0-9])"
    return re.search(pattern, written(text)) is not None


def query_hash(*, tenant: str, agent: str, model: str, knowledge_version: str, scope: str, question: str) -> str:
    """64 hex digits. scope: `public`, or whose and for whom. Keyed with SECRET_KEY: whoever reads the
    names on the server can try no questions against them. Another SECRET_KEY makes all of them misses."""
    told = canonical_json([1, tenant, agent, model, knowledge_version, scope, normalised(question)])
    return salted_hmac(_SALT, told, algorithm="sha256").hexdigest()
