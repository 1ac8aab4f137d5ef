"""Customers in the audit log go by pseudonyms: `c_` and 22 characters, stable for a customer of a tenant.

A pseudonym is an HMAC of the customer's id under a random key of that customer's own. The key is destroyed when the
customer is erased; from then on nobody, whoever has every other key, can tell whose rows those were, and the log is
whole and verifiable as before. Should the id be met again, it gets another key, and so another pseudonym.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import threading
import time
from collections.abc import Iterable

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.utils.crypto import salted_hmac

from guard.audit.models import CustomerPseudonym

# As with agent keys: an erasure is known to other processes within 5 s. Until then they may write rows under the old
# name, whose key is gone for good.
CACHE_SECONDS = 5.0
_CACHE_SIZE = 4096
_ATTEMPTS = 5
_PATTERN = re.compile(r"c_[A-Za-z0-9_-]{22}\Z")

_cache: dict[tuple[str, str], tuple[str, float]] = {}
_cache_lock = threading.Lock()


def _lookups(tenant: str, customer_id: str) -> list[str]:
    """Under the present SECRET_KEY first, then under the former ones. Ids hold no NUL."""
    return [
        salted_hmac("guard.audit.pseudonym", f"{tenant}\0{customer_id}", secret=secret, algorithm="sha256").hexdigest()
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    ]


def _made(key: str, tenant: str, customer_id: str) -> str:
    digest = hmac.digest(bytes.fromhex(key), f"{tenant}\0{customer_id}".encode("utf-8", "surrogatepass"), "sha256")
    return "c_" + base64.urlsafe_b64encode(digest).decode()[:22]


def is_pseudonym(name: str) -> bool:
    return _PATTERN.match(name) is not None


def find(tenant: str, customer_ids: Iterable[str]) -> dict[str, str]:
    """The pseudonyms of those of these customers that have one, by id; makes none. 1 query for 500 ids.

    For whoever reads the log: rows about a customer have it in `customer`.
    """
    wanted = {lookup: one for one in set(customer_ids) for lookup in _lookups(tenant, one)}
    lookups, found = list(wanted), {}
    for start in range(0, len(lookups), 500):
        rows = CustomerPseudonym.objects.filter(lookup__in=lookups[start : start + 500])
        for lookup, key in rows.values_list("lookup", "key"):
            found[wanted[lookup]] = _made(key, tenant, wanted[lookup])
    return found


def of(tenant: str, customer_id: str) -> str:
    """The customer's pseudonym, made where there is none yet. No query when this process met it in the last 5 s.

    In the caller's transaction: a key that is made in it comes and goes with it, and is remembered once committed.
    """
    seen = _cache.get((tenant, customer_id))
    if seen is not None and time.monotonic() - seen[1] < CACHE_SECONDS:
        return seen[0]
    asked = time.monotonic()
    name = find(tenant, [customer_id]).get(customer_id)
    if name is None:
        name = _make(tenant, customer_id)
    remembered = (name, asked)
    if connection.in_atomic_block:
        transaction.on_commit(lambda: _remember(tenant, customer_id, remembered))
    else:
        _remember(tenant, customer_id, remembered)
    return name


def of_all(tenant: str, customer_ids: Iterable[str]) -> dict[str, str]:
    """As `of`, of several customers, by id: 1 query for those whom this process has not met in the last 5 s, 1 INSERT
    for those who have none."""
    wanted, asked = sorted(set(customer_ids)), time.monotonic()
    names = {
        one: seen[0]
        for one in wanted
        if (seen := _cache.get((tenant, one))) is not None and asked - seen[1] < CACHE_SECONDS
    }
    unmet = [one for one in wanted if one not in names]
    if len(unmet) < 2:
        return names | {one: of(tenant, one) for one in unmet}
    met = find(tenant, unmet)
    new = {one: secrets.token_hex(32) for one in unmet if one not in met}
    try:
        with transaction.atomic():
            rows = [
                CustomerPseudonym(lookup=_lookups(tenant, one)[0], tenant=tenant, key=key) for one, key in new.items()
            ]
            CustomerPseudonym.objects.bulk_create(sorted(rows, key=lambda row: row.lookup))
        met |= {one: _made(key, tenant, one) for one, key in new.items()}
    except IntegrityError:
        # Another met one of them at this moment.
        met |= {one: of(tenant, one) for one in new}
    remembered = {one: (name, asked) for one, name in met.items()}

    def remember() -> None:
        for one, name in remembered.items():
            _remember(tenant, one, name)

    if connection.in_atomic_block:
        transaction.on_commit(remember)
    else:
        remember()
    return names | met


def _make(tenant: str, customer_id: str) -> str:
    lookup = _lookups(tenant, customer_id)[0]
    attempt = 0
    while True:
        attempt += 1
        key = secrets.token_hex(32)
        try:
            with transaction.atomic():
                CustomerPseudonym.objects.create(lookup=lookup, tenant=tenant, key=key)
            return _made(key, tenant, customer_id)
        except IntegrityError:
            # Another met the customer at this moment; reads see what others have committed. Destroyed already: anew.
            found = find(tenant, [customer_id]).get(customer_id)
            if found is not None:
                return found
            if attempt == _ATTEMPTS:
                raise  # nobody was first: the table takes no rows


def _remember(tenant: str, customer_id: str, remembered: tuple[str, float]) -> None:
    with _cache_lock:
        if len(_cache) >= _CACHE_SIZE:
            _cache.clear()
        _cache[(tenant, customer_id)] = remembered


def forget_pseudonyms() -> None:
    """Empties this process's cache."""
    with _cache_lock:
        _cache.clear()


def count(tenant: str, customer_id: str = "") -> int:
    """How many keys `destroy` would destroy now."""
    return _rows(tenant, customer_id).count()


def destroy(tenant: str, customer_id: str = "") -> int:
    """Destroys the customer's key (without a customer: all of the tenant's); returns how many there were.

    In the caller's transaction, if there is one. Other processes forget the name within 5 s. Safe to repeat.
    """
    gone, _ = _rows(tenant, customer_id).delete()
    forget_pseudonyms()
    transaction.on_commit(forget_pseudonyms)
    return gone


def _rows(tenant: str, customer_id: str) -> QuerySet[CustomerPseudonym]:
    rows = CustomerPseudonym.objects.filter(tenant=tenant)
    return rows.filter(lookup__in=_lookups(tenant, customer_id)) if customer_id else rows


def renamed(text: str, names: dict[str, str]) -> str:
    """`text` with each customer id that stands in it as a word of its own replaced by the pseudonym."""
    for customer_id, name in names.items():
        if text == customer_id:
            return name
        # Shorter ones are words of many texts; they are replaced where they stand alone.
        if len(customer_id) >= 4 and customer_id in text:
            text = re.sub(rf"(?<![A-Za-z0-9_.-]){re.escape(customer_id)}(?![A-Za-z0-9_.-])", name, text)
    return text
