"""What somebody typed, as the log may keep it: the log is for good, and a customer's id stands in it by pseudonym only.

Whose ids are customers' this room cannot know by itself: the room that does registers itself. Of what is neither known
nor of our own making nothing is kept but that it was there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.contrib.auth.models import User

from config.base.errors import CATALOGUE
from config.base.trace import is_trace_id
from guard.audit import pseudonyms
from guard.audit.models import ActorType, AuditLog, Decision, EventType

UNKNOWN = "unknown"
STARS = "***"
# (tenant, words) -> those that are, or were, a customer's id
CustomerCheck = Callable[[str, set[str]], set[str]]
# (tenant, customer ids) -> what these people are called
NamesOf = Callable[[str, set[str]], set[str]]
_check: CustomerCheck | None = None
_names_of: NamesOf | None = None

# Of a summary: what people write, in which any word may be a customer's.
FREE_TEXT = ("reason", "text", "note")
_RUN = re.compile(r"[A-Za-z0-9_.-]{4,}")
_PART = re.compile(r"[A-Za-z0-9]+")
_MOST_WORDS = 400
# Numbers of rows, UUIDs, and the two behind a kind's name: how the product names what it has made.
_OURS = re.compile(r"(?:[a-z_]{1,16}-)?(?:[0-9]{1,19}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z", re.ASCII)
# Rows whose object was named by a caller, or is a customer in rows that are older than the pseudonyms.
_NOT_OURS = frozenset(
    {"profile_l1", "profile_l2", "profile_l3", "advisor_snapshot", "core_customer", "customer", "actor", "message", ""}
)
_WORDS: Mapping[str, frozenset[str]] = {
    "event": frozenset(EventType.values),
    "decision": frozenset(Decision.values),
    "actor_type": frozenset(ActorType.values),
}


def register_customers(check: CustomerCheck, names_of: NamesOf) -> None:
    """Told at ready() by the room that knows the customers. `check` says yes where it cannot know."""
    global _check, _names_of
    _check, _names_of = check, names_of


def customers_among(tenant: str, words: Iterable[str]) -> dict[str, str]:
    """Of these words those that are or were customers' ids: the pseudonym, or UNKNOWN where the log has none of them.

    Cost: 1 query, and those of the registered check.
    """
    asked = {word for word in words if word}
    found: dict[str, str] = pseudonyms.find(tenant, asked) if asked else {}
    # Whom the log has never met is asked for elsewhere, perhaps far away: not for each word of the language.
    rest = {word for word in asked - set(found) if any(char.isdigit() for char in word)}
    if _check is not None and rest:
        found |= dict.fromkeys(_check(tenant, rest), UNKNOWN)
    return found


def free_text(tenant: str, text: str, customers: Iterable[str] = ()) -> str:
    """A sentence of somebody's: each customer's id in it replaced, and the names of those customers, and of these.

    A name alone, of somebody whom neither the row nor the sentence tells the id of, is not known as one.
    Cost: no query where no word could be an id and no customer is given, else at most 4.
    """
    words = [word for run in _RUN.findall(text) for word in _words_in(run)]
    found = customers_among(tenant, list(dict.fromkeys(words))[:_MOST_WORDS])
    for one in sorted(found, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])", found[one], text)
    whose = {*found, *filter(None, customers)}
    names = _names_of(tenant, whose) if _names_of is not None and whose and text else set()
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = text.replace(name, STARS)
    return text


def _words_in(run: str) -> list[str]:
    """What may be an id in a run of an id's characters: all of it, less the punctuation around it, and what stands
    between: `ref-C000017.` has three."""
    ways = (run, run.strip("._-"), *_PART.findall(run))
    return [word for word in ways if 4 <= len(word) <= 64 and any(char.isdigit() for char in word)]


def summary(tenant: str, given: Mapping[str, Any], customers: Iterable[str] = ()) -> dict[str, Any]:
    """A summary with its free text told so. customers: whom the row names."""
    return {
        name: free_text(tenant, value, customers) if name in FREE_TEXT and isinstance(value, str) else value
        for name, value in given.items()
    }


def word(tenant: str, typed: str) -> str:
    """A word of a caller's: as it is, unless it is or was a customer's id."""
    return customers_among(tenant, [typed]).get(typed, typed)


def object_id(tenant: str, typed: str) -> str:
    """An object's id out of an address: as it is where it has the shape of ours, and is no customer's."""
    if not typed:
        return ""
    if not _OURS.match(typed):
        return customers_among(tenant, [typed]).get(typed, UNKNOWN)
    return word(tenant, typed) if typed.isdigit() else typed


def search(tenant: str, asked: Mapping[str, str]) -> dict[str, str]:
    """The parts of a search, by name: a customer by pseudonym, words of the vocabulary and names of ours as they are,
    of anything else only how long it was. Cost: at most 6 queries a part."""
    return {name: _part(tenant, name, value) for name, value in asked.items() if value}


def _part(tenant: str, name: str, value: str) -> str:
    if name in _WORDS:
        return value if value in _WORDS[name] else _unknown(value)
    found = customers_among(tenant, [value])
    if value in found:
        return found[value]
    if name == "customer":
        return UNKNOWN
    known = {
        "code": _is_code,
        "trace": _is_trace,
        "actor": _is_actor,
        "object": _is_object,
    }
    asked = known.values() if name == "q" else (known[name],)
    if any(check(tenant, value) for check in asked) or (name == "q" and _is_kept_pseudonym(tenant, value)):
        return value
    return _unknown(value)


def _unknown(value: str) -> str:
    return f"{UNKNOWN}, {len(value)} characters"


def _is_code(tenant: str, value: str) -> bool:
    return value in CATALOGUE or AuditLog.objects.filter(tenant=tenant, code=value).order_by().exists()


def _is_trace(tenant: str, value: str) -> bool:
    return is_trace_id(value) and AuditLog.objects.filter(trace_id=value, tenant=tenant).order_by().exists()


def _is_actor(tenant: str, value: str) -> bool:
    """A person of the console, an advisor or analyst, a service: whoever acted under this name and was no customer."""
    if User.objects.filter(username=value).exists() or _is_kept_pseudonym(tenant, value):
        return True
    rows = AuditLog.objects.filter(tenant=tenant, actor_id=value).order_by()
    return rows.exclude(actor_type=ActorType.CUSTOMER).exists()


def _is_object(tenant: str, value: str) -> bool:
    if _is_kept_pseudonym(tenant, value):
        return True
    rows = AuditLog.objects.filter(tenant=tenant, object_id=value).order_by()
    return rows.exclude(object_type__in=_NOT_OURS).exists()


def _is_kept_pseudonym(tenant: str, value: str) -> bool:
    """A pseudonym, also one whose customer was erased."""
    return pseudonyms.is_pseudonym(value) and AuditLog.objects.filter(tenant=tenant, customer=value).order_by().exists()
