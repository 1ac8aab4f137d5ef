"""Agent keys and tokens never reach a log: whatever part of a line looks like one is replaced, wherever it came from.

Clients put keys into URLs, and libraries put headers into exceptions; the formatter is the last place that all of
them pass.
"""

from __future__ import annotations

import logging
import re

# `xh_` and the 43 characters of 32 random bytes; a shorter piece of a key (10 and more) is hidden as well.
_AGENT_KEY = re.compile(r"xh_[A-Za-z0-9_-]{10,}")
# A JSON Web Token, also without its end: a header begins with eyJ, and what follows its dot is the content.
_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?")
_BEARER = re.compile(r"(?i)(bearer(?:\s|%20|\+)+)[^\s'\",;)\]}&]{16,}")
HIDDEN = "xh_[hidden]"
HIDDEN_TOKEN = "token_[hidden]"  # noqa: S105 - what stands in its place


def redact(text: str) -> str:
    """`text` without agent keys, without tokens and without whatever follows the word Bearer."""
    return _AGENT_KEY.sub(HIDDEN, _TOKEN.sub(HIDDEN_TOKEN, _BEARER.sub(rf"\1{HIDDEN}", text)))


class RedactingFormatter(logging.Formatter):
    """Formats as usual, traceback included, and then hides keys."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
